"""The commands of the admin socket."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

import msgspec
import structlog
import trio
from msgspec import UNSET, Raw, UnsetType

from inferd.backend.interface import Backend
from inferd.errors import BackendNotReadyError, ErrorCode, PeerError
from inferd.limits.protocol import MAX_LISTED_MODELS
from inferd.limits.server import MAX_LISTED_ID_CHARS, MAX_LISTED_REQUESTS
from inferd.routing import ModelNames
from inferd.server.admin.reload import ReloadError, ReloadResult
from inferd.server.budgets.budgets import Budgets, no_budgets
from inferd.server.history.explain import explain
from inferd.server.identity.access import is_operator
from inferd.server.identity.peer import Peer
from inferd.server.inflight import InFlight
from inferd.server.loading.loader import ModelLoader
from inferd.server.loading.store_models import StoreModels
from inferd.server.queue.requests import RequestQueue
from inferd.server.request_context import RequestContext, peer_fields
from inferd.server.telemetry.log_tail import LogTail
from inferd.server.telemetry.metrics import Metrics
from inferd.server.telemetry.status import budget_left
from inferd.wire.codec import decode_command
from inferd.wire.commands import BackendInfo, Command, Reply, RequestInfo
from inferd.wire.observed import Overview

log = structlog.get_logger("admin")

OPERATOR_COMMANDS: Final = ("drain", "reload", "load", "unload", "log", "top")
"""Commands for operators only; other users see and cancel their own requests."""
LOOKS: Final = ("backends", "explain", "log", "metrics", "requests", "top")
"""Commands that change nothing: one who looks again and again does not fill the log."""
NOT_AN_OPERATOR: Final = "allowed for root and the daemon's own user only"


@dataclass(frozen=True)
class Commands:
    """Interpreter of admin commands: one reply for each line."""

    in_flight: InFlight
    queue: RequestQueue
    backends: Sequence[Backend]
    metrics: Metrics
    drain: Callable[[], bool]
    """Begins to drain; false if the daemon is not ready yet."""
    reload: Callable[[], Awaitable[ReloadResult]]
    """Orders a reload and waits for its end; raises ``ReloadError`` if it fails."""
    loader: ModelLoader = field(default_factory=ModelLoader)
    """Of the models on demand."""
    names: ModelNames = field(default_factory=ModelNames)
    """The aliases of the backends."""
    budgets: Budgets = field(default_factory=no_budgets)
    store: StoreModels | None = None
    """The models of the store that can be loaded by name."""
    log_tail: LogTail = field(default_factory=LogTail)
    look: Callable[[], Overview] | None = None
    """Describes the daemon as a whole."""

    async def answer(self, line: bytes, peer: Peer) -> Reply:
        """Carry out one command; the reply of a failed one has an error.

        Only ``load``, ``unload`` and ``reload`` take time.

        Cancellation: a load, an unload or a reload that was ordered goes on.
        """
        try:
            command = decode_command(line)
        except PeerError as error:
            return Reply(command="", ok=False, error=error.message)
        note = log.debug if command.command in LOOKS else log.info
        note("admin.command", command=command.command[:64], **peer_fields(peer))
        if command.command in {"load", "unload"} and is_operator(peer):
            return await self._load_or_unload(command, peer)
        if command.command == "reload" and is_operator(peer):
            return await self._reload()
        return self._carry_out(command, peer)

    async def _load_or_unload(self, command: Command, peer: Peer) -> Reply:
        try:
            await self._open(command, peer)
            if not self._is_unread(command):
                backend = self._named(command)
                if backend is None or self.loader.state(backend.key) is None:
                    return self._not_on_demand(command, backend)
                await self._carry_out_order(command.command, backend.key)
        except BackendNotReadyError as error:
            return _refused(command.command, error.message, error.code)
        return Reply(command=command.command, ok=True)

    def _not_on_demand(self, command: Command, backend: Backend | None) -> Reply:
        """Refuse a command that names no model on demand."""
        if backend is not None:
            text = (
                f'backend {backend.name} is not of load = "demand": its model stays '
                "loaded"
            )
            return _refused(command.command, text, ErrorCode.INVALID_REQUEST)
        is_named = command.backend is not UNSET
        return _refused(
            command.command,
            _needed(self._on_demand()),
            ErrorCode.MODEL_NOT_FOUND if is_named else ErrorCode.INVALID_REQUEST,
        )

    def _named(self, command: Command) -> Backend | None:
        """Find the backend that a command names, by its name or an alias."""
        if command.backend is UNSET:
            return None
        return self.names.find(self.backends, command.backend)

    def _on_demand(self) -> list[str]:
        """List the models that can be loaded and unloaded, those of the store among them."""
        unread = () if self.store is None else self.store.unread()
        known = (
            each.name
            for each in self.backends
            if self.loader.state(each.key) is not None
        )
        return [*known, *unread]

    async def _carry_out_order(self, command: str, key: str) -> None:
        if command == "load":
            await self.loader.load(key)
        else:
            await self.loader.unload(key)

    async def _open(self, command: Command, peer: Peer) -> None:
        """Read the header of a model of the store that is to be loaded.

        Raises:
            BackendNotReadyError: it cannot be served.
        """
        if self.store is None or command.backend is UNSET or command.command != "load":
            return
        if name := self.store.unopened(command.backend):
            await self.store.open(name, peer.user)

    def _is_unread(self, command: Command) -> bool:
        """Return whether a model of the store is to be unloaded that is no backend yet."""
        if self.store is None or command.command != "unload":
            return False
        return command.backend in self.store.unread()

    def _carry_out(self, command: Command, peer: Peer) -> Reply:
        if command.command in OPERATOR_COMMANDS and not is_operator(peer):
            return _refused(command.command, NOT_AN_OPERATOR)
        answers: Mapping[str, Callable[[], Reply]] = {
            "backends": self._list_backends,
            "cancel": partial(self._cancel, command, peer),
            "drain": self._drain,
            "explain": partial(self._explain, command, peer),
            "load": partial(_refused, "load", NOT_AN_OPERATOR),
            "log": self._list_log,
            "metrics": partial(self._metrics_text, peer),
            "reload": partial(_refused, "reload", NOT_AN_OPERATOR),
            "requests": partial(self._list_requests, peer),
            "top": self._look,
            "unload": partial(_refused, "unload", NOT_AN_OPERATOR),
        }
        if (answer := answers.get(command.command)) is None:
            allowed = f"no such command; allowed: {', '.join(answers)}"
            return _refused(command.command, allowed)
        return answer()

    def _metrics_text(self, peer: Peer) -> Reply:
        """Give operators all metrics, and other users those of their own requests."""
        metrics = self.metrics
        text = metrics.text() if is_operator(peer) else metrics.text_of(peer.owner)
        return Reply(command="metrics", ok=True, text=text)

    def _look(self) -> Reply:
        """Tell operators of the daemon as a whole."""
        look = self.look
        if look is None:
            return _refused("top", "the daemon keeps no overview")
        return Reply(command="top", ok=True, overview=look())

    def _explain(self, command: Command, peer: Peer) -> Reply:
        """Tell operators of all requests, and other users of their own."""
        owner = None if is_operator(peer) else peer.owner
        return explain(command, self.in_flight, owner)

    def _list_log(self) -> Reply:
        return Reply(command="log", ok=True, lines=self.log_tail.lines())

    def _drain(self) -> Reply:
        if not self.drain():
            return _refused(
                "drain", "the daemon is not ready yet; stop it with SIGTERM"
            )
        return Reply(command="drain", ok=True)

    async def _reload(self) -> Reply:
        try:
            applied, needs_restart = await self.reload()
        except ReloadError as error:
            return _refused("reload", str(error))
        return Reply(
            command="reload", ok=True, applied=applied, needs_restart=needs_restart
        )

    def _list_requests(self, peer: Peer) -> Reply:
        """List all requests for operators, and other users' own; as many as fit."""
        known = self.in_flight.index.of(None if is_operator(peer) else peer.owner)
        listed = [*islice(known.values(), MAX_LISTED_REQUESTS)]
        return Reply(
            command="requests",
            ok=True,
            requests=self._requests(listed),
            omitted=len(known) - len(listed) or UNSET,
        )

    def _requests(self, listed: Sequence[RequestContext]) -> list[RequestInfo]:
        waits = any(each.permit and not each.permit.is_granted for each in listed)
        positions = self.queue.positions() if waits else {}
        return [
            RequestInfo(
                id=_cut(each.request_id),
                socket=each.socket,
                uid=each.peer.uid,
                pid=each.peer.pid,
                principal=each.caller.principal or UNSET,
                phase="queued" if each.started_at is None else "running",
                age_ms=round((trio.current_time() - each.arrived_at) * 1000, 3),
                backend=UNSET if each.backend is None else each.backend,
                position=UNSET
                if each.permit is None
                else positions.get(each.permit, UNSET),
                output_tokens=each.output.n_tokens,
            )
            for each in listed
        ]

    def _list_backends(self) -> Reply:
        infos = [
            BackendInfo(
                name=each.name,
                ready=each.ready,
                aliases=[*self.names.aliases_of(each.name)] or UNSET,
                state=each.state,
                unavailable=UNSET if each.unavailable is None else each.unavailable,
                budget=budget_left(self.budgets.left(each.name)),
                capabilities=Raw(msgspec.json.encode(each.capabilities)),
            )
            for each in self.backends
        ]
        return Reply(command="backends", ok=True, backends=infos)

    def _cancel(self, command: Command, peer: Peer) -> Reply:
        """Cancel requests of the caller with an id, or any user's if it is an operator.

        Those of a gateway's principal have to be asked for with that principal.
        """
        if command.id is None:
            return _refused("cancel", "cancel needs the id of a request")
        principal = None if command.principal is UNSET else command.principal
        n_cancelled = self.in_flight.cancel(
            command.id,
            owner=None if is_operator(peer) else peer.owner,
            principal=principal if principal or is_operator(peer) else "",
        )
        if not n_cancelled:
            return _refused("cancel", f"no request has the id {_quoted(command.id)}")
        return Reply(command="cancel", ok=True, cancelled=n_cancelled)


def _refused(command: str, error: str, code: ErrorCode | UnsetType = UNSET) -> Reply:
    return Reply(command=command, ok=False, error=error, code=code)


def _needed(names: Sequence[str]) -> str:
    """Say which models a command may name."""
    if not names:
        return 'no backend is of load = "demand", and no model of the store is served'
    n_more = len(names) - MAX_LISTED_MODELS
    listed = ", ".join(names[:MAX_LISTED_MODELS])
    return f"it needs a backend, one of {listed}" + (
        f", and {n_more} more" if n_more > 0 else ""
    )


def _cut(text: str) -> str:
    n_chars = MAX_LISTED_ID_CHARS
    return text if len(text) <= n_chars else f"{text[:n_chars]}…"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
