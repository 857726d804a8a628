"""What is known of a request while it is here, and one line of the log when it ends.

Who, what came of it, how long. Never content.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog
import trio
from msgspec import UNSET

from inferd.backend import Reuse
from inferd.errors import InferdError
from inferd.events import MalformedToolCall, Transcription
from inferd.paths import EMBED_SOCKET, INFER_V2_SOCKET, RERANK_SOCKET
from inferd.server.apart import Resolved
from inferd.server.appends import Appends
from inferd.server.custody import NOTHING, Parcel
from inferd.server.facts import Facts
from inferd.server.peer import Peer
from inferd.server.turns import Turn
from inferd.wire.responses import Guesses, Timing

ID_CHARS = 128
"""Characters of a request's id in the log; the client may choose any length."""

WIRE_VERSIONS: Final = {
    INFER_V2_SOCKET: "v2",
    EMBED_SOCKET: "embed",
    RERANK_SOCKET: "rerank",
}
"""What the wire calls what is spoken on a socket; on the first one there is no name."""

Fields = dict[str, str | int | float]

log = structlog.get_logger("activity")


def event_on(socket: str, name: str) -> str:
    """Name an event of the activity log as the wire does: ``v2_request_done``."""
    version = WIRE_VERSIONS.get(socket)
    return f"{version}_{name}" if version else name


def where(socket: str) -> Fields:
    """Say which socket it is about."""
    fields: Fields = {"socket": socket}
    if version := WIRE_VERSIONS.get(socket):
        fields["wire_version"] = version
    return fields


def who(peer: Peer) -> Fields:
    """Say who is at the other end."""
    fields: Fields = {"peer": str(peer), "peer_uid": peer.uid, "peer_pid": peer.pid}
    if peer.identity is not None:
        fields["peer_owner"] = peer.identity.number
    return fields


class Output(Protocol):
    """What is known of an answer while it is written."""

    n_tokens: int
    first_token_at: float | None
    warnings: Sequence[MalformedToolCall]
    reuse: Reuse
    guesses: Guesses


@dataclass
class _Nothing:
    n_tokens: int = 0
    first_token_at: float | None = None
    warnings: Sequence[MalformedToolCall] = ()
    reuse: Reuse = field(default_factory=Reuse)
    guesses: Guesses = field(default_factory=Guesses)


def _ignore(_: int) -> None:
    pass


@dataclass(eq=False)
class Activity:
    """One request, from its arrival to its end."""

    peer: Peer
    socket: str
    request_id: str
    arrived_at: float
    """On trio's clock, in seconds, as the other moments."""
    n_bytes: int = 0
    """Of the line that it came in."""
    arrived_ns: int = field(default_factory=time.time_ns)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """What is done for it: cancelled by its caller, an operator or its deadline."""
    is_cancelled: bool = False
    failure: InferdError | None = None
    """What its client did that ended it, if that is why its scope was cancelled."""
    parcel: Parcel = NOTHING
    """What came with its line: open until it is over."""
    resolved: Resolved | None = None
    """What it comes to, or why it is refused, where another process has read it."""
    appends: Appends = field(default_factory=Appends)
    """What its client sends after it."""
    started_at: float | None = None
    backend: str | None = None
    turn: Turn | None = None
    input_tokens: int = 0
    has_seed: bool = True
    """Whether anything is drawn for its answer; a transcription is not."""
    output: Output = field(default_factory=_Nothing)
    on_heard: Callable[[int], object] = _ignore
    """Told how many bytes of its open sound are not needed any more."""
    sound_ended_at: float | None = None
    """When the end of its open sound was read."""
    facts: Facts = field(default_factory=dict)
    """What more there is to log of it."""
    outcome: str = "abandoned"
    """Its stop reason or error code, once it has ended."""

    def cancel(self) -> None:
        """End it, whatever it is doing."""
        self.is_cancelled = True
        self.scope.cancel()

    def fail(self, error: InferdError) -> None:
        """End it for a fault of its client's, whatever it is doing."""
        self.failure = self.failure or error
        self.appends.close()
        self.scope.cancel()

    def free(self) -> None:
        """Give back what came with it and after it; once is enough."""
        self.parcel.close()
        self.appends.close()

    @property
    def fds(self) -> tuple[int, ...]:
        """The descriptors that came with its line, open until it is over."""
        return self.parcel.fds

    def allow(self, deadline_ms: int | None) -> None:
        """Give it so long from its arrival."""
        if deadline_ms is not None:
            self.scope.deadline = self.arrived_at + deadline_ms / 1000

    def started(self) -> None:
        """Note that it is its turn."""
        self.started_at = trio.current_time()

    @property
    def first_token_at(self) -> float | None:
        """When the first token of its answer came."""
        return self.output.first_token_at

    def timing(self, n_tokens: int) -> Timing:
        """Tell when it happened, as of now.

        Args:
            n_tokens: of the answer.
        """
        now = trio.current_time()
        started_at = now if self.started_at is None else self.started_at
        first_at = now if (spoke_at := self.first_token_at) is None else spoke_at
        decode_s = now - first_at
        return Timing(
            queued_ms=_ms(self.arrived_at, started_at),
            prefill_ms=_ms(started_at, first_at),
            first_token_ms=_ms(self.arrived_at, first_at),
            decode_ms=_ms(first_at, now),
            total_ms=_ms(self.arrived_at, now),
            tokens_per_second=round((n_tokens - 1) / decode_s, 3)
            if n_tokens > 1 and decode_s
            else 0.0,
            arrived_ns=self.arrived_ns,
            started_ns=self._ns(started_at),
            finished_ns=self._ns(now),
            paused_ms=self._paused_ms() or UNSET,
        )

    def _paused_ms(self) -> float:
        return 0.0 if self.turn is None else round(self.turn.paused_s * 1000, 3)

    def heard(self, transcription: Transcription, input_tokens: int) -> None:
        """Note what speech was written down, and how fast; its tokens are known now."""
        self.input_tokens = input_tokens
        self.facts["audio_ms"] = transcription.audio_ms
        self.facts["real_time_factor"] = transcription.real_time_factor

    def latency_ms(self) -> float | None:
        """Tell how long ago the end of its open sound was read, if it had any."""
        ended_at = self.sound_ended_at
        return None if ended_at is None else _ms(ended_at, trio.current_time())

    def done(self, stop_reason: str) -> None:
        """Write the line of a request that was answered."""
        self.outcome = stop_reason
        name = event_on(self.socket, "request_done")
        log.info(name, **self._fields(), stop_reason=stop_reason)

    def refused(self, error: InferdError) -> None:
        """Write the line of a request that failed, before its turn or in it."""
        self.outcome = error.code.value
        has_begun = self.started_at is not None
        name = "request_error_mid_stream" if has_begun else "request_refused"
        name = event_on(self.socket, name)
        log.warning(name, **self._fields(), code=self.outcome)

    def abandoned(self) -> None:
        """Write the line of a request whose client is gone."""
        log.info(event_on(self.socket, "request_abandoned"), **self._fields())

    def _ns(self, moment: float) -> int:
        return self.arrived_ns + int((moment - self.arrived_at) * 1e9)

    def _fields(self) -> Fields:
        now = trio.current_time()
        started_at = now if self.started_at is None else self.started_at
        fields: Fields = {"req_id": self.request_id[:ID_CHARS]}
        if self.backend is not None:
            fields["backend"] = self.backend
        fields |= where(self.socket) | who(self.peer) | self.facts
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

    def _tokens(self) -> Facts:
        """Count them, by the names that they have on its socket."""
        match WIRE_VERSIONS.get(self.socket):
            case None:
                names = ("prompt_tokens", "completion_tokens")
            case "v2":
                names = ("input_tokens", "output_tokens")
            case _:
                return {"input_tokens": self.input_tokens}
        return dict(zip(names, (self.input_tokens, self.output.n_tokens), strict=True))


def _ms(start_s: float, end_s: float) -> float:
    return round((end_s - start_s) * 1000, 3)
