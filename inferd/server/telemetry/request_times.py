"""Distributions of the times of requests, for operators."""

from typing import Final

from inferd.errors import ErrorCode
from inferd.server.request_context import RequestContext
from inferd.server.telemetry.metric_registry import BACKEND, SOCKET, MetricRegistry
from inferd.server.telemetry.request_counts import LATENCY_BUCKETS_S

TOKEN_BUCKETS_S: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
"""Bounds of histogram buckets: from a small model on an accelerator to one that is hardly
read as it is written."""
_NOT_ANSWERED: Final = frozenset({"abandoned", *(code.value for code in ErrorCode)})


class RequestTimes:
    """Times of requests that ended.

    Bounds:
        Labels are sockets and backends.

    Args:
        registry: where the metrics are defined.
    """

    def __init__(self, registry: MetricRegistry) -> None:
        self._queue = registry.histogram(
            "queue_seconds",
            "From arrival until a request ran.",
            SOCKET,
            buckets=LATENCY_BUCKETS_S,
        )
        self._request = registry.histogram(
            "request_seconds",
            "From arrival to the end, of requests that a model answered.",
            SOCKET,
            buckets=LATENCY_BUCKETS_S,
        )
        self._token = registry.histogram(
            "token_seconds",
            "Mean time between the tokens of an answer, with its pauses.",
            BACKEND,
            buckets=TOKEN_BUCKETS_S,
        )
        self._stalled = registry.counter(
            "stalled_seconds",
            "Time for which answers waited for clients that did not read.",
            SOCKET,
        )

    def count(self, context: RequestContext, now: float) -> None:
        """Count a request that ended now."""
        socket, started_at, steps = context.socket, context.started_at, context.steps
        if started_at is not None:
            self._queue.labels(socket).observe(started_at - context.arrived_at)
        if context.outcome not in _NOT_ANSWERED and not context.is_about_models:
            self._request.labels(socket).observe(now - context.arrived_at)
        if steps.stalled_s:
            self._stalled.labels(socket).inc(steps.stalled_s)
        output = context.output
        n_gaps = output.n_tokens - max(1, output.n_first_tokens)
        first_at, left_at = context.first_token_at, steps.left_at
        if context.backend and n_gaps > 0 and first_at is not None:
            decode_s = (now if left_at is None else left_at) - first_at
            self._token.labels(context.backend).observe(decode_s / n_gaps)
