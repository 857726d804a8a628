"""Commands on the admin socket: what operators ask and order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import structlog
import trio
from msgspec import UNSET, Raw

from inferd.backend import Backend
from inferd.config import ConfigError
from inferd.errors import PeerError
from inferd.server.access import is_operator
from inferd.server.activity import Activity, who
from inferd.server.limits import MAX_LISTED_ID_CHARS, MAX_LISTED_REQUESTS
from inferd.server.metrics import Metrics
from inferd.server.peer import Peer
from inferd.server.register import Register
from inferd.server.reload import Reloaded
from inferd.server.turns import Turns
from inferd.wire.codec import decode_command
from inferd.wire.commands import BackendInfo, Command, Reply, RequestInfo

log = structlog.get_logger("admin")

CHANGES: Final = ("drain", "reload")
"""Commands for operators; others see and end what is theirs."""
NOT_AN_OPERATOR: Final = "only root and the user whom the daemon runs as may"


@dataclass(frozen=True)
class Commands:
    """Answers each line with one reply."""

    register: Register
    turns: Turns
    backends: Sequence[Backend]
    metrics: Metrics
    drain: Callable[[], bool]
    """Begin to drain; false if there is nothing to be drained yet."""
    reload: Callable[[], Reloaded]
    """Read the configuration again; raises ``ConfigError``, and changes nothing then."""

    def answer(self, line: bytes, peer: Peer) -> Reply:
        """Carry out one command, or say why not."""
        try:
            command = decode_command(line)
        except PeerError as error:
            return Reply(command="", ok=False, error=error.message)
        log.info("admin.command", command=command.command[:64], **who(peer))
        return self._carry_out(command, peer)

    def _carry_out(self, command: Command, peer: Peer) -> Reply:
        if command.command in CHANGES and not is_operator(peer):
            return _refused(command.command, NOT_AN_OPERATOR)
        answers: Mapping[str, Callable[[], Reply]] = {
            "backends": self._list_backends,
            "cancel": partial(self._cancel, command, peer),
            "drain": self._drain,
            "metrics": partial(self._tell_metrics, peer),
            "reload": self._reload,
            "requests": partial(self._list_requests, peer),
        }
        if (answer := answers.get(command.command)) is None:
            allowed = f"no such command; allowed: {', '.join(answers)}"
            return _refused(command.command, allowed)
        return answer()

    def _tell_metrics(self, peer: Peer) -> Reply:
        """Tell operators all, and others what is counted of their own requests."""
        metrics = self.metrics
        text = metrics.text() if is_operator(peer) else metrics.text_of(peer.owner)
        return Reply(command="metrics", ok=True, text=text)

    def _drain(self) -> Reply:
        if not self.drain():
            return _refused("drain", "the daemon is not ready yet; end it with SIGTERM")
        return Reply(command="drain", ok=True)

    def _reload(self) -> Reply:
        try:
            applied, needs_restart = self.reload()
        except ConfigError as error:
            return _refused("reload", str(error))
        return Reply(
            command="reload", ok=True, applied=applied, needs_restart=needs_restart
        )

    def _list_requests(self, peer: Peer) -> Reply:
        """List the requests that a peer may know of, as many as fit."""
        known = [
            each
            for each in self.register
            if is_operator(peer) or each.peer.owner == peer.owner
        ]
        listed = known[:MAX_LISTED_REQUESTS]
        return Reply(
            command="requests",
            ok=True,
            requests=self._requests(listed),
            omitted=len(known) - len(listed) or UNSET,
        )

    def _requests(self, listed: Sequence[Activity]) -> list[RequestInfo]:
        positions = {turn: at for at, turn in enumerate(self.turns.order(), start=1)}
        return [
            RequestInfo(
                id=_cut(each.request_id),
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
            for each in listed
        ]

    def _list_backends(self) -> Reply:
        infos = [
            BackendInfo(
                name=each.name,
                ready=each.ready,
                unavailable=UNSET if each.unavailable is None else each.unavailable,
                capabilities=Raw(msgspec.json.encode(each.capabilities)),
            )
            for each in self.backends
        ]
        return Reply(command="backends", ok=True, backends=infos)

    def _cancel(self, command: Command, peer: Peer) -> Reply:
        """Cancel a request of the caller's, or of anybody's where the caller may."""
        if command.id is None:
            return _refused("cancel", "cancel needs the id of a request")
        n_cancelled = self.register.cancel(
            command.id, owner=None if is_operator(peer) else peer.owner
        )
        if not n_cancelled:
            return _refused("cancel", f"no request has the id {_quoted(command.id)}")
        return Reply(command="cancel", ok=True, cancelled=n_cancelled)


def _refused(command: str, error: str) -> Reply:
    return Reply(command=command, ok=False, error=error)


def _cut(text: str) -> str:
    n_chars = MAX_LISTED_ID_CHARS
    return text if len(text) <= n_chars else f"{text[:n_chars]}…"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
