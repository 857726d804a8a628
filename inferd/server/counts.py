"""What is counted of requests: of all of them, and of each user's own."""

from collections import OrderedDict
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest

from inferd.backend import Reuse
from inferd.job import NOBODY
from inferd.server.activity import Activity
from inferd.server.facts import Facts
from inferd.server.limits import MAX_COUNTED_USERS
from inferd.wire.responses import Guesses

SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
"""Bounds of histogram buckets: from a warm short prompt to a long wait in the queue."""


class RequestCounts:
    """Counts requests that ended.

    Bounds:
        Labels are sockets, backends, stop reasons and error codes, never a client's words.

    Args:
        registry: has the counters from here on.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._requests = self._counter(
            "requests",
            "Requests that ended, by how, and lines that are none.",
            "socket",
            "outcome",
        )
        self._tokens = self._counter(
            "tokens", "Tokens read and written.", "backend", "kind"
        )
        self._first_token = Histogram(
            "inferd_first_token_seconds",
            "From arrival to the first token.",
            ("socket",),
            buckets=SECONDS,
            registry=registry,
        )
        self._prompts = self._counter(
            "cached_prompts",
            "Prompts that began with what the cache held, or why not.",
            "backend",
            "outcome",
        )
        self._guesses = self._counter(
            "drafted_tokens",
            "Tokens guessed ahead of the model, by whether it chose them, too.",
            "backend",
            "outcome",
        )
        self._audio = self._counter(
            "audio_seconds", "Seconds of sound that was heard.", "backend"
        )
        self._images = self._counter("images", "Images that were looked at.", "backend")

    def count(self, activity: Activity) -> None:
        """Count a request that ended."""
        self.count_outcome(activity.socket, activity.outcome)
        if activity.backend is not None:
            tokens = self._tokens
            tokens.labels(activity.backend, "input").inc(activity.input_tokens)
            tokens.labels(activity.backend, "output").inc(activity.output.n_tokens)
            self._count_media(activity.backend, activity.facts)
            self._count_reuse(activity.backend, activity.output.reuse)
            self._count_guesses(activity.backend, activity.output.guesses)
        if activity.first_token_at is not None:
            waited_s = activity.first_token_at - activity.arrived_at
            self._first_token.labels(activity.socket).observe(waited_s)

    def count_outcome(self, socket: str, outcome: str) -> None:
        """Count one request, or one line that is none, by how it ended alone."""
        self._requests.labels(socket, outcome).inc()

    def _count_media(self, backend: str, facts: Facts) -> None:
        if audio_ms := facts.get("audio_ms"):
            self._audio.labels(backend).inc(audio_ms / 1000)
        if n_images := facts.get("n_images"):
            self._images.labels(backend).inc(n_images)

    def _count_reuse(self, backend: str, reuse: Reuse) -> None:
        if has_run(reuse):
            self._tokens.labels(backend, "cached").inc(reuse.cached_tokens)
            self._prompts.labels(backend, reuse.miss or "hit").inc()

    def _count_guesses(self, backend: str, guesses: Guesses) -> None:
        if n_drafted := guesses.drafted_tokens:
            n_accepted = guesses.accepted_tokens
            self._guesses.labels(backend, "accepted").inc(n_accepted)
            self._guesses.labels(backend, "rejected").inc(n_drafted - n_accepted)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"inferd_{name}", text, labels, registry=self._registry)


def has_run(reuse: Reuse) -> bool:
    """Tell whether a request looked for what the cache holds; some have no cache."""
    return bool(reuse.cached_tokens) or reuse.miss is not None


class UserCounts:
    """Counts each user's own requests, for users who may see no others.

    Who is counted together with others has none: numbers of one would tell of another.

    Bounds:
        ``MAX_COUNTED_USERS``; whoever has asked nothing for the longest time is forgotten
        first, and begins again at 0.
    """

    def __init__(self) -> None:
        self._counts: OrderedDict[int, tuple[CollectorRegistry, RequestCounts]] = (
            OrderedDict()
        )

    def count(self, activity: Activity) -> None:
        """Count a request that ended for the one who asked."""
        owner = activity.peer.owner
        if owner <= NOBODY:
            return
        if owner not in self._counts:
            if len(self._counts) >= MAX_COUNTED_USERS:
                self._counts.popitem(last=False)
            self._counts[owner] = _nothing_counted()
        self._counts.move_to_end(owner)
        self._counts[owner][1].count(activity)

    def text(self, owner: int) -> str:
        """Write what there is of a user's, in Prometheus' text format."""
        registry, _ = self._counts.get(owner) or _nothing_counted()
        return generate_latest(registry).decode()


def _nothing_counted() -> tuple[CollectorRegistry, RequestCounts]:
    registry = CollectorRegistry()
    return registry, RequestCounts(registry)
