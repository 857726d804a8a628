"""The metrics of the bridge, in Prometheus' text format."""

from collections.abc import Callable, Mapping

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
        self._daemon_up = Gauge(
            "inferd_bridge_daemon_up",
            "1 if the daemon accepted connections when the metrics were read.",
            registry=self._registry,
        )
        self._principals = CollectorRegistry()
        """What is counted by principal: the names of tokens, which are bounded."""
        self._requests_by_principal = Counter(
            "inferd_bridge_principal_requests",
            "HTTP requests by the name of the token that they came with.",
            ("principal",),
            registry=self._principals,
        )
        self._tokens_by_principal = Counter(
            "inferd_bridge_principal_tokens",
            "Tokens of prompts and answers by the name of the token.",
            ("principal",),
            registry=self._principals,
        )
        self._seconds = Histogram(
            "inferd_bridge_request_seconds",
            "Seconds from a request's head to the end of its answer.",
            registry=self._registry,
        )

    def daemon_seen(self, *, is_up: bool) -> None:
        """Note whether the daemon accepts connections now."""
        self._daemon_up.set(is_up)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a number that is read when it is asked for."""
        Gauge(name, text, registry=self._registry).set_function(read)

    def request_ended(
        self, route: str, status: int, seconds: float, principal: str = ""
    ) -> None:
        """Count a request; status 0 is a client that hung up."""
        if principal:
            self._requests_by_principal.labels(principal).inc()
        if status:
            self._requests.labels(route or "none", str(status)).inc()
        else:
            self._hang_ups.inc()
        self._seconds.observe(seconds)

    def request_failed(self, code: str) -> None:
        """Count a failure by its code."""
        self._failures.labels(code).inc()

    def tokens_used(self, route: str, n_tokens: int, principal: str = "") -> None:
        """Count tokens."""
        if principal and n_tokens:
            self._tokens_by_principal.labels(principal).inc(n_tokens)
        self._tokens.labels(route or "none").inc(n_tokens)

    def tokens_of(self, principal: str) -> tuple[int, int]:
        """Return the tokens of one principal, and of all."""
        own = _sum(self._tokens_by_principal, {"principal": principal})
        return own, _sum(self._tokens_by_principal, {})

    def text(self, *, by_principal: bool = False) -> bytes:
        """Write the metrics.

        Args:
            by_principal: whether also what is counted by principal.
        """
        text = generate_latest(self._registry)
        return text + generate_latest(self._principals) if by_principal else text


def _sum(counter: Counter, labels: Mapping[str, str]) -> int:
    """Return the sum of a counter's samples that have some labels."""
    samples = (each for metric in counter.collect() for each in metric.samples)
    return int(
        sum(
            each.value
            for each in samples
            if each.name.endswith("_total") and labels.items() <= each.labels.items()
        )
    )
