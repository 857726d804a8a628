"""Request counters: of all requests, and of each user's own."""

from collections import OrderedDict
from typing import Final

from inferd.backend.interface import CacheReuse
from inferd.backend.job import NO_UID
from inferd.limits.server import MAX_COUNTED_USERS
from inferd.server.request_context import RequestContext, RequestStats
from inferd.server.telemetry.metric_registry import (
    BACKEND,
    SOCKET,
    Label,
    MetricRegistry,
)
from inferd.wire.responses import DraftCounts

LATENCY_BUCKETS_S: Final = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
"""Bounds of histogram buckets: from a warm short prompt to a long wait in the queue."""


class RequestCounts:
    """Counters of requests that ended.

    Bounds:
        Labels are sockets, backends, stop reasons and error codes, never a client's text.

    Args:
        registry: where the counters are defined.
    """

    def __init__(self, registry: MetricRegistry) -> None:
        self._requests = registry.counter(
            "requests",
            "Requests that ended, by outcome, and lines that are no request.",
            SOCKET,
            Label("outcome", "`stop_reason`, error code or `abandoned`"),
        )
        self._tokens = registry.counter(
            "tokens",
            "Tokens read and written.",
            BACKEND,
            Label("kind", "`input`, `output` or `cached`"),
        )
        self._first_token = registry.histogram(
            "first_token_seconds",
            "From arrival to the first token.",
            SOCKET,
            buckets=LATENCY_BUCKETS_S,
        )
        self._prompts = registry.counter(
            "cached_prompts",
            "Prompts by whether they began with cached tokens, or why not.",
            BACKEND,
            Label("outcome", "`hit` or `cache_miss`"),
        )
        self._draft_tokens = registry.counter(
            "drafted_tokens",
            "Tokens drafted ahead of the model, by whether it accepted them.",
            BACKEND,
            Label("outcome", "`accepted` or `rejected`"),
        )
        self._audio = registry.counter(
            "audio_seconds", "Seconds of audio that models processed.", BACKEND
        )
        self._images = registry.counter(
            "images", "Images that models processed.", BACKEND
        )

    def count(self, context: RequestContext) -> None:
        """Count a request that ended."""
        self.count_outcome(context.socket, context.outcome)
        if context.backend is not None:
            tokens = self._tokens
            tokens.labels(context.backend, "input").inc(context.input_tokens)
            tokens.labels(context.backend, "output").inc(context.output.n_tokens)
            self._count_media(context.backend, context.stats)
            self._count_reuse(context.backend, context.output.reuse)
            self._count_draft_tokens(context.backend, context.output.draft_counts)
        if context.first_token_at is not None:
            waited_s = context.first_token_at - context.arrived_at
            self._first_token.labels(context.socket).observe(waited_s)

    def count_outcome(self, socket: str, outcome: str) -> None:
        """Count one request, or one line that is no request, by its outcome only."""
        self._requests.labels(socket, outcome).inc()

    def _count_media(self, backend: str, stats: RequestStats) -> None:
        if audio_ms := stats.get("audio_ms"):
            self._audio.labels(backend).inc(audio_ms / 1000)
        if n_images := stats.get("n_images"):
            self._images.labels(backend).inc(n_images)

    def _count_reuse(self, backend: str, reuse: CacheReuse) -> None:
        if used_prefix_cache(reuse):
            self._tokens.labels(backend, "cached").inc(reuse.cached_tokens)
            self._prompts.labels(backend, reuse.miss or "hit").inc()

    def _count_draft_tokens(self, backend: str, draft_counts: DraftCounts) -> None:
        if n_drafted := draft_counts.drafted_tokens:
            n_accepted = draft_counts.accepted_tokens
            self._draft_tokens.labels(backend, "accepted").inc(n_accepted)
            self._draft_tokens.labels(backend, "rejected").inc(n_drafted - n_accepted)


def used_prefix_cache(reuse: CacheReuse) -> bool:
    """Tell whether a request was looked up in the prefix cache; some backends have none."""
    return bool(reuse.cached_tokens) or reuse.miss is not None


class UserCounts:
    """Counters of each user's own requests, for users who may not see others'.

    Users who share an owner number with others have none: the counts of one would tell
    about another.

    Bounds:
        ``MAX_COUNTED_USERS``; the user without a request for the longest time is forgotten
        first, and begins again at 0.
    """

    def __init__(self) -> None:
        self._counts: OrderedDict[int, tuple[MetricRegistry, RequestCounts]] = (
            OrderedDict()
        )

    def count(self, context: RequestContext) -> None:
        """Count a request that ended for its owner."""
        owner = context.peer.owner
        if owner <= NO_UID:
            return
        if owner not in self._counts:
            if len(self._counts) >= MAX_COUNTED_USERS:
                self._counts.popitem(last=False)
            self._counts[owner] = _nothing_counted()
        self._counts.move_to_end(owner)
        self._counts[owner][1].count(context)

    def text(self, owner: int) -> str:
        """Render a user's counters in Prometheus' text format."""
        registry, _ = self._counts.get(owner) or _nothing_counted()
        return registry.text()


def _nothing_counted() -> tuple[MetricRegistry, RequestCounts]:
    registry = MetricRegistry()
    return registry, RequestCounts(registry)
