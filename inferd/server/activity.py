"""One line of the log for each request: who, what came of it, how long. Never content."""

from dataclasses import dataclass

import structlog
import trio

from inferd.errors import InferdError
from inferd.server.peer import Peer
from inferd.wire.responses import DoneFrame

ID_CHARS = 128
"""Characters of a request's id in the log; the client may choose any length."""

log = structlog.get_logger("activity")


@dataclass(slots=True)
class Activity:
    """What is known of a request; written when it ends."""

    peer: Peer
    socket: str
    request_id: str
    arrived_at: float
    started_at: float | None = None
    first_token_at: float | None = None
    backend: str | None = None

    @classmethod
    def begin(cls, peer: Peer, socket: str, request_id: str) -> "Activity":
        """Note a request's arrival."""
        return cls(peer, socket, request_id[:ID_CHARS], trio.current_time())

    def started(self) -> None:
        """Note that it is its turn."""
        self.started_at = trio.current_time()

    def spoke(self) -> None:
        """Note the first token; later calls change nothing."""
        if self.first_token_at is None:
            self.first_token_at = trio.current_time()

    def done(self, done: DoneFrame) -> None:
        """Write the line of a request that was answered."""
        log.info(
            "request.finished",
            **self._fields(),
            stop_reason=done.stop_reason,
            prompt_tokens=done.usage.prompt_tokens,
            completion_tokens=done.usage.completion_tokens,
        )

    def refused(self, error: InferdError) -> None:
        """Write the line of a request that failed."""
        log.warning("request.refused", **self._fields(), code=error.code.value)

    def abandoned(self) -> None:
        """Write the line of a request whose client is gone."""
        log.info("request.abandoned", **self._fields())

    def _fields(self) -> dict[str, str | int | float]:
        now = trio.current_time()
        fields: dict[str, str | int | float | None] = {
            "socket": self.socket,
            "req_id": self.request_id,
            "peer_uid": self.peer.uid,
            "peer_pid": self.peer.pid,
            "backend": self.backend,
            "queued_ms": _ms(
                self.arrived_at, now if self.started_at is None else self.started_at
            ),
            "first_token_ms": _ms(self.arrived_at, self.first_token_at),
            "total_ms": _ms(self.arrived_at, now),
        }
        return {key: value for key, value in fields.items() if value is not None}


def _ms(start_s: float, end_s: float | None) -> float | None:
    return None if end_s is None else round((end_s - start_s) * 1000, 1)
