"""Gauges of backends and their workers, read whenever the metrics are."""

from collections.abc import Sequence

from inferd.backend.interface import Backend
from inferd.memory.resident import resident_bytes
from inferd.server.telemetry.metric_registry import BACKEND, MetricRegistry


class BackendGauges:
    """What each backend has and whether it serves.

    Args:
        registry: where the gauges are defined.
    """

    def __init__(self, registry: MetricRegistry) -> None:
        self.backends: Sequence[Backend] = ()
        """Those that are looked at."""
        self._failed = registry.gauge(
            "backend_failed",
            "1 while a backend refuses requests: its model cannot be loaded, its worker "
            "died too often, or its remote engine is not asked.",
            BACKEND,
        )
        self._slots = registry.gauge(
            "backend_slots", "Requests that a backend can run at once.", BACKEND
        )
        self._resident = registry.gauge(
            "worker_resident_bytes",
            "Resident memory of a worker, with pages of the model's file.",
            BACKEND,
        )

    def refresh(self) -> None:
        """Look at the backends."""
        for gauge in (self._failed, self._slots, self._resident):
            gauge.clear()
        for backend in self.backends:
            name, pid = backend.name, backend.worker_pid
            self._failed.labels(name).set(backend.unavailable is not None)
            if n_slots := backend.capabilities.n_slots:
                self._slots.labels(name).set(n_slots)
            n_bytes = None if pid is None else resident_bytes(pid)
            if n_bytes is not None:
                self._resident.labels(name).set(n_bytes)
