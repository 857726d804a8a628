"""Counters and gauges, told in Prometheus' text format."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import generate_latest

from inferd.errors import InferdError, PeerError
from inferd.server.activity import Activity
from inferd.server.counts import RequestCounts, UserCounts, has_run


class Metrics:
    """What a monitoring system wants to know of a daemon.

    Bounds:
        Labels are sockets, backends, stop reasons and error codes, never a client's words.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = RequestCounts(self._registry)
        self._of_users = UserCounts()
        self._saved = Gauge(
            "inferd_saved_prompt_bytes",
            "Host memory that prompts take that are kept there.",
            ("backend",),
            registry=self._registry,
        )
        self._turned_away = self._counter(
            "refused_connections",
            "Connections that were closed at once, by the error code.",
            "socket",
            "code",
        )
        self._restarts = self._counter("worker_deaths", "Workers that died.", "backend")
        self._lost_lines = self._counter(
            "log_lines_dropped",
            "Lines of the log that their sink did not take in time, or at all.",
            "sink",
        )
        for sink in ("stderr", "file"):
            self._lost_lines.labels(sink)  # told from the start, as 0

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Tell a number that is read when it is asked for."""
        Gauge(f"inferd_{name}", text, registry=self._registry).set_function(read)

    def count(self, activity: Activity) -> None:
        """Count a request that ended."""
        self._requests.count(activity)
        self._of_users.count(activity)
        reuse = activity.output.reuse
        if activity.backend is not None and has_run(reuse):
            self._saved.labels(activity.backend).set(reuse.saved_bytes)

    def count_refused(self, socket: str, error: PeerError) -> None:
        """Count a line that is no request."""
        self._requests.count_outcome(socket, error.code.value)

    def count_turned_away(self, socket: str, error: InferdError) -> None:
        """Count a connection that was closed at once."""
        self._turned_away.labels(socket, error.code.value).inc()

    def worker_died(self, backend: str) -> None:
        """Count a worker's death."""
        self._restarts.labels(backend).inc()
        self._saved.labels(backend).set(0)

    def line_lost(self, sink: str) -> None:
        """Count a line that is not in the log; called in any thread."""
        self._lost_lines.labels(sink).inc()

    def text(self) -> str:
        """Write all of it, for operators."""
        return generate_latest(self._registry).decode()

    def text_of(self, owner: int) -> str:
        """Write what is counted of a user's own requests: nothing else tells of others."""
        return self._of_users.text(owner)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"inferd_{name}", text, labels, registry=self._registry)
