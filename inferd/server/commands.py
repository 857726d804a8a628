"""Commands on the admin socket: what operators ask and order."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import structlog
import trio
from msgspec import UNSET, Raw

from inferd.backend import Backend
from inferd.errors import PeerError
from inferd.server.metrics import Metrics
from inferd.server.peer import Peer
from inferd.server.register import Register
from inferd.server.turns import Turns
from inferd.wire.codec import decode_command
from inferd.wire.commands import BackendInfo, Command, Reply, RequestInfo

log = structlog.get_logger("admin")

ROOT: Final = 0
NO_SUCH_COMMAND: Final = (
    "no such command; allowed: backends, cancel, drain, metrics, requests"
)


@dataclass(frozen=True)
class Commands:
    """Answers each line with one reply."""

    register: Register
    turns: Turns
    backends: Sequence[Backend]
    metrics: Metrics
    drain: Callable[[], bool]
    """Begin to drain; false if there is nothing to be drained yet."""

    def answer(self, line: bytes, peer: Peer) -> Reply:
        """Carry out one command, or say why not."""
        try:
            command = decode_command(line)
        except PeerError as error:
            return Reply(command="", ok=False, error=error.message)
        log.info("admin.command", command=command.command[:64], peer=str(peer))
        return self._carry_out(command, peer)

    def _carry_out(self, command: Command, peer: Peer) -> Reply:
        reply = partial(Reply, command=command.command, ok=True)
        match command.command:
            case "requests":
                return reply(requests=self._requests())
            case "backends":
                return reply(backends=self._backends())
            case "metrics":
                return reply(text=self.metrics.text())
            case "cancel":
                return self._cancel(command, peer)
            case _:
                return self._drain_if(command)

    def _drain_if(self, command: Command) -> Reply:
        if command.command != "drain":
            return _refused(command.command, NO_SUCH_COMMAND)
        if not self.drain():
            return _refused("drain", "the daemon is not ready yet; end it with SIGTERM")
        return Reply(command="drain", ok=True)

    def _requests(self) -> list[RequestInfo]:
        positions = {turn: at for at, turn in enumerate(self.turns.order(), start=1)}
        return [
            RequestInfo(
                id=each.request_id,
                socket=each.socket,
                uid=each.peer.uid,
                pid=each.peer.pid,
                phase="queued" if each.started_at is None else "running",
                age_ms=round((trio.current_time() - each.arrived_at) * 1000, 3),
                backend=UNSET if each.backend is None else each.backend,
                position=UNSET
                if each.turn is None
                else positions.get(each.turn, UNSET),
                output_tokens=each.output.n_tokens,
            )
            for each in self.register
        ]

    def _backends(self) -> list[BackendInfo]:
        return [
            BackendInfo(
                name=each.name,
                ready=each.ready,
                unavailable=UNSET if each.unavailable is None else each.unavailable,
                capabilities=Raw(msgspec.json.encode(each.capabilities)),
            )
            for each in self.backends
        ]

    def _cancel(self, command: Command, peer: Peer) -> Reply:
        """Cancel a request of the caller's, or of anybody's where the caller may."""
        if command.id is None:
            return _refused("cancel", "cancel needs the id of a request")
        is_operator = peer.uid in (ROOT, os.getuid())
        n_cancelled = self.register.cancel(
            command.id, uid=None if is_operator else peer.uid
        )
        if not n_cancelled:
            return _refused("cancel", f"no request has the id {_quoted(command.id)}")
        return Reply(command="cancel", ok=True, cancelled=n_cancelled)


def _refused(command: str, error: str) -> Reply:
    return Reply(command=command, ok=False, error=error)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
