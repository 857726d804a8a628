"""How many requests run at once and how much memory models get, configured or measured."""

import os
from typing import TypeVar

from inferd.admission.control import Admission
from inferd.config.kinds.kind import InWorker
from inferd.config.settings import BackendSettings, Config
from inferd.engine.supervisor.spawn import WorkerStart, first_start
from inferd.limits.admission import MAX_ACTIVE_DEFAULT_CAP
from inferd.memory.available import available_bytes
from inferd.memory.plan import MemoryBudget

S = TypeVar("S", bound=BackendSettings)


def max_active_requests(config: Config) -> int:
    """Choose how many requests run at once: as configured, else one per core, capped."""
    cores = len(os.sched_getaffinity(0))
    return config.admission.max_active or min(cores, MAX_ACTIVE_DEFAULT_CAP)


def worker_start(served_by: InWorker[S], settings: S, config: Config) -> WorkerStart:
    """Make the first start of a backend's worker, with as many slots as requests run."""
    return first_start(
        served_by.program,
        settings,
        n_slots=max_active_requests(config),
        limits=config.limits,
        credential=served_by.credential(settings),
    )


def make_admission(config: Config) -> Admission:
    """Make the admission control that the configuration describes."""
    return Admission(
        max_active=max_active_requests(config),
        max_queued=config.admission.max_queued,
        max_queued_tokens=config.admission.max_queued_tokens,
        max_queued_bytes=config.admission.max_queued_bytes,
        quantum_s=config.admission.quantum_s,
        max_live=config.admission.max_live,
        gateway_weight=config.admission.gateway_weight,
    )


def memory_budget(config: Config) -> MemoryBudget:
    """Compute the memory for models: as configured, else what is free less the reserve."""
    n_bytes = config.memory.budget
    if n_bytes is None:
        n_bytes = max(0, available_bytes() - config.memory.reserve)
    return MemoryBudget(
        n_bytes=n_bytes,
        n_slots=max_active_requests(config),
        slots_are_set=config.admission.max_active is not None,
    )
