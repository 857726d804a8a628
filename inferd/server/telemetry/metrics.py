"""Counters and gauges, in Prometheus' text format."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import trio

from inferd.backend.gauge import GaugeSpec
from inferd.errors import InferdError, PeerError
from inferd.memory.resident import resident_bytes
from inferd.server.request_context import RequestContext
from inferd.server.telemetry.backend_gauges import BackendGauges
from inferd.server.telemetry.metric_registry import (
    BACKEND,
    SOCKET,
    Label,
    MetricDefinition,
    MetricRegistry,
)
from inferd.server.telemetry.request_counts import (
    RequestCounts,
    UserCounts,
    used_prefix_cache,
)
from inferd.server.telemetry.request_times import RequestTimes
from inferd.wire.status import CapabilitiesFrame, StatusFrame


def _process_gauges() -> Iterator[GaugeSpec]:
    """Describe the gauges of the daemon's own process."""
    began, pid = time.time(), os.getpid()
    yield (
        "resident_bytes",
        "Resident memory of the daemon's own process.",
        lambda: resident_bytes(pid) or 0,
    )
    yield (
        "started_seconds",
        "When the daemon began, in seconds since 1970.",
        lambda: began,
    )


class Metrics:
    """Metrics of the daemon.

    Bounds:
        Labels are sockets, backends, stop reasons and error codes, never a client's text.
    """

    def __init__(self) -> None:
        self._registry = registry = MetricRegistry()
        self._requests = RequestCounts(registry)
        self._user_counts = UserCounts()
        self._times = RequestTimes(registry)
        self.backends = BackendGauges(registry)
        """Gauges of the backends; the daemon sets which."""
        self._watched: dict[str, Callable[[], float]] = {}
        self._saved_bytes: dict[str, int] = {}
        self._saved = registry.gauge(
            "saved_prompt_bytes", "Host memory that saved prompts take.", BACKEND
        )
        self._gpu_layers = registry.gauge(
            "gpu_layers", "Layers on accelerators.", BACKEND
        )
        self._device_memory = registry.gauge(
            "device_memory_bytes",
            "Memory of accelerators in all, and free when the model had been loaded.",
            BACKEND,
            Label("kind", "`total` or `free`"),
        )
        self._pauses = registry.counter(
            "pauses", "Times that requests were paused for other users.", BACKEND
        )
        self._refused_connections = registry.counter(
            "refused_connections",
            "Connections that were closed at once, by the error code.",
            SOCKET,
            Label("code", "error code"),
        )
        self._remotes = registry.gauge(
            "remote_available",
            "1 while a remote engine is asked, 0 while its breaker is open.",
            BACKEND,
        )
        self._budgets = registry.gauge(
            "backend_budget_left",
            "What is left of the budget of a backend.",
            BACKEND,
            Label("of", "`requests` of this minute or `tokens` of today"),
        )
        self._read_budgets: Callable[[], Iterable[tuple[str, str, float]]] = tuple
        self._restarts = registry.counter(
            "worker_deaths", "Workers that died.", BACKEND
        )
        self._lost_lines = registry.counter(
            "log_lines_dropped",
            "Lines of the log that their sink did not accept in time, or at all.",
            Label("sink", "`stderr` or `file`"),
        )
        for sink in ("stderr", "file"):
            self._lost_lines.labels(sink)  # exported from the start, as 0
        self.add_gauges(*_process_gauges())

    @property
    def definitions(self) -> Sequence[MetricDefinition]:
        """All metrics that operators are given, in that order."""
        return self._registry.definitions

    def add_gauges(self, *gauges: GaugeSpec) -> None:
        """Export numbers that are read whenever the metrics are."""
        for gauge in gauges:
            self.add_gauge(*gauge)

    def add_gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Export a number that is read whenever the metrics are."""
        self._registry.watched_gauge(name, text, read)
        self._watched[name] = read

    def read(self, name: str) -> int:
        """Read a number that ``add_gauge`` exports; 0 if there is none with that name."""
        read = self._watched.get(name)
        return 0 if read is None else int(read())

    def saved_prompt_bytes(self, backend: str) -> int | None:
        """Return the host memory of a backend's saved prompts, if it is known."""
        return self._saved_bytes.get(backend)

    def count(self, context: RequestContext) -> None:
        """Count a request that ended."""
        self._requests.count(context)
        self._user_counts.count(context)
        self._times.count(context, trio.current_time())
        reuse = context.output.reuse
        if context.backend is not None and used_prefix_cache(reuse):
            self._note_saved(context.backend, reuse.saved_bytes)
        if context.backend is not None and context.permit is not None:
            self._pauses.labels(context.backend).inc(context.permit.n_pauses)

    def count_invalid_line(self, socket: str, error: PeerError) -> None:
        """Count a line that is no request."""
        self._requests.count_outcome(socket, error.code.value)

    def count_refused_connection(self, socket: str, error: InferdError) -> None:
        """Count a connection that was closed at once."""
        self._refused_connections.labels(socket, error.code.value).inc()

    def follow(self, frame: StatusFrame) -> None:
        """Note what a backend has on accelerators, and whether a remote one is asked."""
        match frame:
            case CapabilitiesFrame(backend=name, remote=True):
                self._remotes.labels(name).set(frame.state != "failed")
            case CapabilitiesFrame(
                backend=name, vram_total_bytes=int(total), vram_free_bytes=int(free)
            ):
                self._gpu_layers.labels(name).set(frame.gpu_layers)
                self._device_memory.labels(name, "total").set(total)
                self._device_memory.labels(name, "free").set(free)
            case _:
                pass

    def worker_died(self, backend: str) -> None:
        """Count a worker's death."""
        self._restarts.labels(backend).inc()
        self._note_saved(backend, 0)

    def _note_saved(self, backend: str, n_bytes: int) -> None:
        self._saved_bytes[backend] = n_bytes
        self._saved.labels(backend).set(n_bytes)

    def line_lost(self, sink: str) -> None:
        """Count a line that is not in the log; called in any thread."""
        self._lost_lines.labels(sink).inc()

    def watch_budgets(
        self, read: Callable[[], Iterable[tuple[str, str, float]]]
    ) -> None:
        """Export what is left of budgets, which is read whenever the metrics are."""
        self._read_budgets = read

    def text(self) -> str:
        """Render all metrics, for operators."""
        self.backends.refresh()
        self._budgets.clear()
        for backend, of, number in self._read_budgets():
            self._budgets.labels(backend, of).set(number)
        return self._registry.text()

    def text_of(self, owner: int) -> str:
        """Render the counts of a user's own requests, which tell nothing about others."""
        return self._user_counts.text(owner)
