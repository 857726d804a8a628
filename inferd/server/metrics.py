"""Counters and gauges, told in Prometheus' text format."""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from inferd.backend import Reuse
from inferd.errors import InferdError, PeerError
from inferd.server.activity import Activity
from inferd.server.facts import Facts
from inferd.wire.responses import Guesses

SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
"""Bounds of histogram buckets: from a warm short prompt to a long wait in the queue."""


class Metrics:
    """What a monitoring system wants to know of a daemon.

    Bounds:
        Labels are sockets, backends, stop reasons and error codes, never a client's words.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
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
            registry=self._registry,
        )
        self._prompts = self._counter(
            "cached_prompts",
            "Prompts that began with what the cache held, or why not.",
            "backend",
            "outcome",
        )
        self._saved = Gauge(
            "inferd_saved_prompt_bytes",
            "Host memory that prompts take that are kept there.",
            ("backend",),
            registry=self._registry,
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
        self._pauses = self._counter(
            "pauses", "Times that requests were paused for other users.", "backend"
        )
        self._images = self._counter("images", "Images that were looked at.", "backend")
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
        self._requests.labels(activity.socket, activity.outcome).inc()
        if activity.backend is not None:
            tokens = self._tokens
            tokens.labels(activity.backend, "input").inc(activity.input_tokens)
            tokens.labels(activity.backend, "output").inc(activity.output.n_tokens)
            if activity.turn is not None:
                self._pauses.labels(activity.backend).inc(activity.turn.n_pauses)
            self._count_media(activity.backend, activity.facts)
            self._count_reuse(activity.backend, activity.output.reuse)
            self._count_guesses(activity.backend, activity.output.guesses)
        if activity.first_token_at is not None:
            waited_s = activity.first_token_at - activity.arrived_at
            self._first_token.labels(activity.socket).observe(waited_s)

    def _count_media(self, backend: str, facts: Facts) -> None:
        if audio_ms := facts.get("audio_ms"):
            self._audio.labels(backend).inc(audio_ms / 1000)
        if n_images := facts.get("n_images"):
            self._images.labels(backend).inc(n_images)

    def _count_reuse(self, backend: str, reuse: Reuse) -> None:
        if not reuse.cached_tokens and reuse.miss is None:
            return  # it did not run, or there is nothing to keep
        self._tokens.labels(backend, "cached").inc(reuse.cached_tokens)
        self._prompts.labels(backend, reuse.miss or "hit").inc()
        self._saved.labels(backend).set(reuse.saved_bytes)

    def _count_guesses(self, backend: str, guesses: Guesses) -> None:
        if n_drafted := guesses.drafted_tokens:
            n_accepted = guesses.accepted_tokens
            self._guesses.labels(backend, "accepted").inc(n_accepted)
            self._guesses.labels(backend, "rejected").inc(n_drafted - n_accepted)

    def count_refused(self, socket: str, error: PeerError) -> None:
        """Count a line that is no request."""
        self._requests.labels(socket, error.code.value).inc()

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
        """Write all of it."""
        return generate_latest(self._registry).decode()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"inferd_{name}", text, labels, registry=self._registry)
