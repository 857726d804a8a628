"""How much the daemon does at once: as configured, or as the machine allows."""

import os

from inferd.admission.gate import Admission
from inferd.config import Config
from inferd.engine.available import available_bytes
from inferd.fit import Budget
from inferd.limits import MAX_ACTIVE_DEFAULT_CAP


def active_requests(config: Config) -> int:
    """How many requests run at once: as configured, else the cores, up to a cap."""
    cores = len(os.sched_getaffinity(0))
    return config.admission.max_active or min(cores, MAX_ACTIVE_DEFAULT_CAP)


def make_gate(config: Config) -> Admission:
    """Make the gate that is configured."""
    return Admission(
        max_active=active_requests(config),
        max_queued=config.admission.max_queued,
        max_queued_tokens=config.admission.max_queued_tokens,
        max_queued_bytes=config.admission.max_queued_bytes,
        quantum_s=config.admission.quantum_s,
        max_live=config.admission.max_live,
    )


def memory_budget(config: Config) -> Budget:
    """What the models may take: as configured, else what is there, less the reserve."""
    n_bytes = config.memory.budget
    if n_bytes is None:
        n_bytes = max(0, available_bytes() - config.memory.reserve)
    return Budget(
        n_bytes=n_bytes,
        n_slots=active_requests(config),
        slots_are_set=config.admission.max_active is not None,
    )
