"""The metrics of the bridge, in Prometheus' text format."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class BridgeMetrics:
    """Counts requests; no label has a client's text."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "inferd_bridge_requests",
            "HTTP requests by route and status.",
            ("route", "status"),
            registry=self._registry,
        )
        self._failures = Counter(
            "inferd_bridge_failures",
            "Requests that failed by code, streams whose status was sent before among them.",
            ("code",),
            registry=self._registry,
        )
        self._tokens = Counter(
            "inferd_bridge_tokens",
            "Tokens of prompts and answers by route.",
            ("route",),
            registry=self._registry,
        )
        self._hang_ups = Counter(
            "inferd_bridge_hang_ups",
            "Requests whose client closed the connection before the answer was complete.",
            registry=self._registry,
        )
        self._seconds = Histogram(
            "inferd_bridge_request_seconds",
            "Seconds from a request's head to the end of its answer.",
            registry=self._registry,
        )

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a number that is read when it is asked for."""
        Gauge(name, text, registry=self._registry).set_function(read)

    def request_ended(self, route: str, status: int, seconds: float) -> None:
        """Count a request; status 0 is a client that hung up."""
        if status:
            self._requests.labels(route or "none", str(status)).inc()
        else:
            self._hang_ups.inc()
        self._seconds.observe(seconds)

    def request_failed(self, code: str) -> None:
        """Count a failure by its code."""
        self._failures.labels(code).inc()

    def tokens_used(self, route: str, n_tokens: int) -> None:
        """Count tokens."""
        self._tokens.labels(route or "none").inc(n_tokens)

    def text(self) -> bytes:
        """Write all metrics."""
        return generate_latest(self._registry)
