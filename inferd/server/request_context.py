"""The state of a request, and its line of the log when it ends.

The line has the client, the outcome, counts and times, never content.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import structlog
import trio
from msgspec import UNSET

from inferd.backend.caller import Caller
from inferd.backend.events import MalformedToolCall, Transcription
from inferd.backend.interface import CacheReuse, J, Prepared
from inferd.errors import InferdError, ModelNotFoundError
from inferd.server.fd_passing.quota import NO_FDS, LineFds
from inferd.server.history.rate import tokens_per_second
from inferd.server.history.steps import Steps
from inferd.server.identity.gateways import Principal
from inferd.server.identity.peer import Peer
from inferd.server.large_lines.decode import ResolveResult
from inferd.server.media.append_queue import AppendQueue
from inferd.server.queue.requests import Permit
from inferd.surfaces import Surface
from inferd.wire.responses import DraftCounts, Timing

RequestStats = dict[str, int | float]


ID_CHARS = 128
"""Characters of a request's id in the log; the client may choose any length."""

LogFields = dict[str, str | int | float]

log = structlog.get_logger("activity")


def event_name(surface: Surface, name: str) -> str:
    """Name an event with the protocol of its socket: ``v2_request_done``."""
    version = surface.wire_version
    return f"{version}_{name}" if version else name


def socket_fields(surface: Surface) -> LogFields:
    """Make the log fields that name a socket."""
    fields: LogFields = {"socket": surface.socket}
    if surface.wire_version:
        fields["wire_version"] = surface.wire_version
    return fields


def peer_fields(peer: Peer) -> LogFields:
    """Make the log fields that name a client."""
    fields: LogFields = {"peer": str(peer), "peer_uid": peer.uid, "peer_pid": peer.pid}
    if peer.identity is not None:
        fields["peer_owner"] = peer.identity.number
    return fields


class AnswerStats(Protocol):
    """Counts and times of an answer, updated during generation."""

    n_tokens: int
    n_first_tokens: int
    first_token_at: float | None
    warnings: Sequence[MalformedToolCall]
    reuse: CacheReuse
    draft_counts: DraftCounts

    @property
    def unsent_token_ids(self) -> Sequence[int]:
        """Ids of the tokens that no frame had so far, if they were requested."""


@dataclass
class _NoAnswer:
    n_tokens: int = 0
    n_first_tokens: int = 0
    first_token_at: float | None = None
    warnings: Sequence[MalformedToolCall] = ()
    reuse: CacheReuse = field(default_factory=CacheReuse)
    draft_counts: DraftCounts = field(default_factory=DraftCounts)
    unsent_token_ids: Sequence[int] = ()


def _ignore(_: int) -> None:
    pass


@dataclass(eq=False)
class RequestContext:
    """State of one request, from its arrival to its end."""

    peer: Peer
    surface: Surface
    request_id: str
    arrived_at: float
    """Seconds on trio's clock, like all fields that end in ``_at``."""
    n_bytes: int = 0
    """Length of its line."""
    arrived_ns: int = field(default_factory=time.time_ns)
    number: int = 0
    """Counts the requests of all sockets from 1."""
    steps: Steps = field(default_factory=Steps)
    """The steps of its life that are not below."""
    model: str | None = None
    """The name that it asks for."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Cancelled by the client, an operator or the deadline."""
    is_cancelled: bool = False
    is_about_models: bool = False
    """Whether it was only told which models there are, which programs ask all the time."""
    failure: InferdError | None = None
    """The client's fault, if that is why the scope was cancelled."""
    line_fds: LineFds = NO_FDS
    """Descriptors that came with its line, open until it ends."""
    principal: Principal | None = None
    """Who asks, if the peer is a gateway."""
    denial: InferdError | None = None
    """Why it may not say who asks, or not so."""
    resolved: ResolveResult | None = None
    """The resolved request or its refusal, if a decoder process has read the line."""
    appends: AppendQueue = field(default_factory=AppendQueue)
    """Lines by which its client appends to its audio."""
    started_at: float | None = None
    backend: str | None = None
    permit: Permit | None = None
    input_tokens: int = 0
    is_estimate: bool = False
    """Whether these tokens are estimated."""
    counted_tokens: int | None = None
    """Tokens of prompt and answer, as the backend has counted them at the end."""
    has_seed: bool = True
    """Whether the answer is sampled with a seed; a transcription is not."""
    output: AnswerStats = field(default_factory=_NoAnswer)
    on_audio_read: Callable[[int], object] = _ignore
    """Called with the number of bytes of its open audio that are not needed any more."""
    audio_ended_at: float | None = None
    """When the end of its open audio was received."""
    stats: RequestStats = field(default_factory=dict)
    """Further numbers for the log and the metrics."""
    outcome: str = "abandoned"
    """The stop reason or error code, once the request has ended."""

    @property
    def caller(self) -> Caller:
        """Who is asking: whose share of every limit it uses."""
        name = "" if self.principal is None else self.principal.name
        return Caller(self.peer.user, name)

    @property
    def owner(self) -> int:
        """The owner of its data."""
        return self.peer.owner if self.principal is None else self.principal.owner

    @property
    def socket(self) -> str:
        """File name of the socket that received it."""
        return self.surface.socket

    def cancel(self) -> None:
        """Cancel the request for its client or an operator, at any time."""
        self.is_cancelled = True
        self.scope.cancel()

    def fail(self, error: InferdError) -> None:
        """Fail the request for a fault of its client, at any time."""
        self.failure = self.failure or error
        self.appends.close()
        self.scope.cancel()

    def release(self) -> None:
        """Close its descriptors and appends; may be called more than once."""
        self.line_fds.close()
        self.appends.close()

    @property
    def fds(self) -> tuple[int, ...]:
        """The descriptors that came with its line, open until it ends."""
        return self.line_fds.fds

    def set_deadline(self, deadline_ms: int | None) -> None:
        """Set the deadline, in milliseconds from its arrival."""
        if deadline_ms is not None:
            self.scope.deadline = self.arrived_at + deadline_ms / 1000

    @contextmanager
    def queued(self, permit: Permit, backend: str) -> Iterator[None]:
        """Note that it has a place in the queue for a backend while inside."""
        self.permit, self.backend = permit, backend
        self.steps.queued_at = trio.current_time()
        try:
            yield
        finally:
            self.steps.left_at = trio.current_time()

    def prepared(self, prepared: Prepared[J]) -> None:
        """Note that its prompt, or its texts, have been counted."""
        self.input_tokens = prepared.input_tokens
        self.is_estimate = prepared.is_estimate
        self.steps.prepared_at = trio.current_time()

    def started(self) -> None:
        """Note that the request runs from now on."""
        self.started_at = trio.current_time()

    @property
    def first_token_at(self) -> float | None:
        """When the first token of its answer was received from the worker."""
        return self.output.first_token_at

    def timing(self, n_tokens: int) -> Timing:
        """Compute the times of the request, as of now.

        Args:
            n_tokens: tokens of the answer.
        """
        now = trio.current_time()
        started_at = now if self.started_at is None else self.started_at
        first_at = now if (token_at := self.first_token_at) is None else token_at
        return Timing(
            queued_ms=_ms(self.arrived_at, started_at),
            prefill_ms=_ms(started_at, first_at),
            first_token_ms=_ms(self.arrived_at, first_at),
            decode_ms=_ms(first_at, now),
            total_ms=_ms(self.arrived_at, now),
            tokens_per_second=tokens_per_second(
                n_tokens, self.output.n_first_tokens, now - first_at
            ),
            arrived_ns=self.arrived_ns,
            started_ns=self._ns(started_at),
            finished_ns=self._ns(now),
            paused_ms=self._paused_ms() or UNSET,
        )

    def _paused_ms(self) -> float:
        return 0.0 if self.permit is None else round(self.permit.paused_s * 1000, 3)

    def transcribed(self, transcription: Transcription, input_tokens: int) -> None:
        """Note the length and speed of a transcription, and its input tokens."""
        self.input_tokens = input_tokens
        self.stats["audio_ms"] = transcription.audio_ms
        self.stats["real_time_factor"] = transcription.real_time_factor

    def latency_ms(self) -> float | None:
        """Compute the time since the end of its open audio, if it had any."""
        ended_at = self.audio_ended_at
        return None if ended_at is None else _ms(ended_at, trio.current_time())

    def done(self, stop_reason: str) -> None:
        """Log that the request was answered."""
        self.outcome = stop_reason
        name = event_name(self.surface, "request_done")
        log.info(name, **self._fields(), stop_reason=stop_reason)

    def listed(self) -> None:
        """Log that the request was told of models."""
        self.is_about_models = True
        self.outcome = "end"
        log.debug(event_name(self.surface, "models_listed"), **self._fields())

    def refused(self, error: InferdError) -> None:
        """Log that the request failed, before it ran or while it did."""
        self.outcome = error.code.value
        if isinstance(error, ModelNotFoundError) and error.is_asked_for:
            self.is_about_models = True
            log.info(event_name(self.surface, "models_listed"), **self._fields())
            return
        has_begun = self.started_at is not None
        name = "request_error_mid_stream" if has_begun else "request_refused"
        name = event_name(self.surface, name)
        log.warning(name, **self._fields(), code=self.outcome)

    def abandoned(self) -> None:
        """Log that the request ended with its client's connection."""
        log.info(event_name(self.surface, "request_abandoned"), **self._fields())

    def _ns(self, moment: float) -> int:
        return self.arrived_ns + int((moment - self.arrived_at) * 1e9)

    def _fields(self) -> LogFields:
        now = trio.current_time()
        started_at = now if self.started_at is None else self.started_at
        fields: LogFields = {"req_id": self.request_id[:ID_CHARS]}
        if self.backend is not None:
            fields["backend"] = self.backend
        fields |= socket_fields(self.surface) | peer_fields(self.peer) | self.stats
        if self.caller.principal:
            fields["principal"] = self.caller.principal
        if n_fds := len(self.fds) + self.appends.n_fds:
            fields["n_fds"] = n_fds
        if self.appends.n_bytes:
            fields["appended_bytes"] = self.appends.n_bytes
        if self.backend is not None:
            fields |= self._tokens()
        fields["queued_ms"] = _ms(self.arrived_at, started_at)
        if paused_ms := self._paused_ms():
            fields["paused_ms"] = paused_ms
        if self.first_token_at is not None:
            fields["first_token_ms"] = _ms(self.arrived_at, self.first_token_at)
        return fields | {"total_ms": _ms(self.arrived_at, now)}

    def _tokens(self) -> RequestStats:
        """Make the token counts, named as in the protocol of its socket."""
        counts = (self.input_tokens, self.output.n_tokens)
        return dict(zip(self.surface.token_counts, counts, strict=False))


def _ms(start_s: float, end_s: float) -> float:
    return round((end_s - start_s) * 1000, 3)
