"""What is known of a request while it is here, and one line of the log when it ends.

Who, what came of it, how long. Never content.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog
import trio

from inferd.backend import MalformedToolCall, Reuse
from inferd.errors import InferdError
from inferd.server.peer import Peer
from inferd.server.turns import Turn
from inferd.wire.responses import Guesses, Timing

ID_CHARS = 128
"""Characters of a request's id in the log; the client may choose any length."""

log = structlog.get_logger("activity")


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
    started_at: float | None = None
    backend: str | None = None
    turn: Turn | None = None
    input_tokens: int = 0
    output: Output = field(default_factory=_Nothing)
    outcome: str = "abandoned"
    """Its stop reason or error code, once it has ended."""

    def cancel(self) -> None:
        """End it, whatever it is doing."""
        self.is_cancelled = True
        self.scope.cancel()

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
        )

    def done(self, stop_reason: str) -> None:
        """Write the line of a request that was answered."""
        self.outcome = stop_reason
        log.info(
            "request.finished",
            **self._fields(),
            stop_reason=stop_reason,
            prompt_tokens=self.input_tokens,
            completion_tokens=self.output.n_tokens,
        )

    def refused(self, error: InferdError) -> None:
        """Write the line of a request that failed."""
        self.outcome = error.code.value
        log.warning("request.refused", **self._fields(), code=self.outcome)

    def abandoned(self) -> None:
        """Write the line of a request whose client is gone."""
        log.info("request.abandoned", **self._fields())

    def _ns(self, moment: float) -> int:
        return self.arrived_ns + int((moment - self.arrived_at) * 1e9)

    def _fields(self) -> dict[str, str | int | float]:
        now = trio.current_time()
        fields: dict[str, str | int | float | None] = {
            "socket": self.socket,
            "req_id": self.request_id[:ID_CHARS],
            "peer_uid": self.peer.uid,
            "peer_pid": self.peer.pid,
            "backend": self.backend,
            "queued_ms": _ms(
                self.arrived_at, now if self.started_at is None else self.started_at
            ),
            "first_token_ms": None
            if self.first_token_at is None
            else _ms(self.arrived_at, self.first_token_at),
            "total_ms": _ms(self.arrived_at, now),
        }
        return {key: value for key, value in fields.items() if value is not None}


def _ms(start_s: float, end_s: float) -> float:
    return round((end_s - start_s) * 1000, 3)
