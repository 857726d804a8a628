"""Answer the bridge: one request for each connection."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio
from msgspec import UNSET, UnsetType

from inferd.bridge.access_log import BridgeLog, kind_of
from inferd.client.asynchronous import command
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError
from inferd.client.peer_check import uid_of
from inferd.errors import ErrorCode, FrameTooLargeError
from inferd.limits.bridge import (
    HELPER_REQUEST_BYTES,
    HELPER_REQUEST_S,
    HELPER_WRITE_S,
)
from inferd.limits.residency import LOAD_COMMAND_S
from inferd.management.machine import (
    managed_backends,
    managed_log,
    managed_machine,
)
from inferd.management.policy import HelperPolicy, HelperRefusedError
from inferd.management.pulling import PullTask
from inferd.management.pulls import pull_frames
from inferd.management.shares import HelperShares
from inferd.management.store import managed_model, managed_models, remove_model
from inferd.peer_credentials import overflow_uid
from inferd.terminal import escape
from inferd.wire.codec import DECODE_FAILURES
from inferd.wire.commands import Command, Reply
from inferd.wire.framing import LineSplitter
from inferd.wire.management import (
    HELPER_REQUESTS,
    FailureKind,
    HelperDone,
    HelperFrame,
    HelperRequest,
    ManagedMachine,
    helper_line,
)

_READ_BYTES: Final = 4096
_KINDS: Final[Mapping[ErrorCode | UnsetType, FailureKind]] = {
    ErrorCode.INVALID_REQUEST: "invalid_request",
    ErrorCode.MODEL_NOT_FOUND: "model_not_found",
    ErrorCode.BACKEND_UNAVAILABLE: "unavailable",
}
"""What the bridge is told of the codes of the daemon's replies."""


@dataclass(frozen=True, kw_only=True)
class HelperPlaces:
    """Where things are."""

    store: Path
    """The store whose models are managed."""
    directory: Path | None
    """Of the daemon's sockets; ``None`` for the default ones."""
    environ: Mapping[str, str]
    """Of the processes of pulls."""
    ca_file: str | None = None
    """Of the certificate authorities to trust; ``None`` for those of the system."""


class HelperService:
    """Carries out requests.

    Args:
        policy: what is allowed.
        places: of the store and the daemon.
        log: gets a line for each request.
    """

    def __init__(
        self, policy: HelperPolicy, places: HelperPlaces, log: BridgeLog
    ) -> None:
        self._policy = policy
        self._places = places
        self._log = log
        self._shares = HelperShares(policy.settings.pulls_per_hour)
        self.n_connections = 0
        """Connections that are open."""
        self.last_active_at = trio.current_time()
        """When the last one ended, seconds of trio's clock."""

    async def handle(self, stream: trio.SocketStream) -> None:
        """Answer the request of a connection, and close it."""
        self.n_connections += 1
        try:
            async with stream:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._serve(stream)
        finally:
            self.n_connections -= 1
            self.last_active_at = trio.current_time()

    async def _serve(self, stream: trio.SocketStream) -> None:
        began = trio.current_time()
        uid = uid_of(stream.socket)
        request: HelperRequest | None = None
        outcome = "hung_up"
        try:
            self._check_peer(uid)
            request = await _read_request(stream)
            if request is not None:
                outcome = await self._answer_until_hang_up(stream, request)
        except HelperRefusedError as error:
            outcome = error.code
            await _send(stream, error.frame)
        finally:
            self._note(uid, request, outcome, trio.current_time() - began)

    def _check_peer(self, uid: int) -> None:
        if uid == overflow_uid() or not self._policy.admits(uid):
            raise HelperRefusedError(
                "permission_denied",
                f"uid {uid} may not ask the bridge's helper; uids in [bridge_helper] of the "
                "configuration has who may",
            )

    def _note(
        self, uid: int, request: HelperRequest | None, outcome: str, seconds: float
    ) -> None:
        """Log a request; what it names is checked to have no control characters."""
        self._log.write(
            "info" if outcome in {"done", "hung_up"} else "warn",
            "helper_request.ended",
            peer_uid=uid,
            principal=request.principal if request else None,
            command=request.command if request else None,
            model=(request.model or None) if request else None,
            source=(ascii(request.source)[1:-1] or None) if request else None,
            outcome=outcome,
            ms=round(seconds * 1000, 1),
        )

    async def _answer_until_hang_up(
        self, stream: trio.SocketStream, request: HelperRequest
    ) -> str:
        """Answer a request; return how it ended."""
        outcome = "hung_up"
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                with suppress(trio.BrokenResourceError):
                    await stream.receive_some(1)
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            outcome = await self._answer(stream, request)
            nursery.cancel_scope.cancel()
        return outcome

    async def _answer(self, stream: trio.SocketStream, request: HelperRequest) -> str:
        try:
            with self._shares.request(request.principal):
                self._policy.check(request)
                async with aclosing(self._frames(request)) as frames:
                    async for frame in frames:
                        await _send(stream, frame)
        except HelperRefusedError as error:
            refusal = error
            if error.code == "failed" and error.__cause__ is not None:
                reason = escape(str(error.__cause__))  # may name paths
                self._log.write("warn", "helper_request.failed", error=reason)
        except trio.BrokenResourceError:
            return "hung_up"
        except Exception as error:  # noqa: BLE001  # a bug: told without its text
            self._log.write("error", "helper_request.failed", error=kind_of(error))
            refusal = HelperRefusedError("internal", "a bug; the helper's log has it")
        else:
            return "done"
        with suppress(trio.BrokenResourceError):
            await _send(stream, refusal.frame)
        return refusal.code

    async def _frames(
        self, request: HelperRequest
    ) -> AsyncGenerator[HelperFrame, None]:
        """Carry out a request that is allowed, and yield the frames of its answer.

        Raises:
            HelperRefusedError: it cannot be carried out.
        """
        if request.command == "pull":
            async with aclosing(self._pull(request)) as frames:
                async for frame in frames:
                    yield frame
            return
        for frame in await self._answers(request):
            yield frame

    async def _answers(self, request: HelperRequest) -> Sequence[HelperFrame]:
        """Carry out a request that takes no time, or whose progress nobody is told."""
        store, name = self._places.store, request.model
        in_thread = trio.to_thread.run_sync
        match request.command:
            case "list":
                return [*await in_thread(managed_models, store), HelperDone()]
            case "show":
                return [await in_thread(managed_model, store, name), HelperDone()]
            case "remove":
                check = self._policy.check_source
                freed = await in_thread(remove_model, store, name, check)
                return [HelperDone(freed_bytes=freed)]
            case _:
                return await self._told(request)

    async def _told(self, request: HelperRequest) -> Sequence[HelperFrame]:
        """Have the daemon carry out a request."""
        match request.command:
            case "status":
                reply = await self._ask(Command(command="backends"))
                return [*managed_backends(reply), HelperDone()]
            case "machine":
                return [await self._machine(), HelperDone()]
            case "log":
                reply = await self._ask(Command(command="log"))
                return [managed_log(reply), HelperDone()]
            case _:
                return [await self._order(request)]

    async def _pull(self, request: HelperRequest) -> AsyncGenerator[HelperFrame, None]:
        settings, places = self._policy.settings, self._places
        task = PullTask(
            source=request.source,
            name=request.model or None,
            sha256=request.sha256,
            store=str(places.store),
            max_bytes=settings.max_pull_bytes,
            min_free_bytes=settings.min_free_bytes,
            ca_file=places.ca_file,
        )
        with self._shares.pull(request.principal, trio.current_time()):
            pulling = pull_frames(task, places.environ, settings.max_pull_s)
            async with aclosing(pulling) as frames:
                async for frame in frames:
                    yield frame

    async def _machine(self) -> ManagedMachine:
        """Ask the daemon what it does.

        Raises:
            HelperRefusedError: it does not answer, or refuses.
        """
        requests = await self._ask(Command(command="requests"))
        metrics = await self._ask(Command(command="metrics"))
        overview = (await self._ask(Command(command="top"))).overview
        if overview is UNSET:
            raise HelperRefusedError("unavailable", "the daemon tells no numbers")
        return managed_machine(requests, metrics, overview)

    async def _order(self, request: HelperRequest) -> HelperDone:
        reply = await self._ask(
            Command(command=request.command, backend=request.model or UNSET)
        )
        return HelperDone(
            applied=UNSET if reply.applied is UNSET else tuple(reply.applied),
            needs_restart=(
                UNSET if reply.needs_restart is UNSET else tuple(reply.needs_restart)
            ),
        )

    async def _ask(self, order: Command) -> Reply:
        """Send a command to the daemon.

        Raises:
            HelperRefusedError: it does not answer, or refuses.
        """
        try:
            with trio.fail_after(LOAD_COMMAND_S):
                reply = await command(order, self._places.directory)
        except (NoDaemonError, ClientError, OSError, trio.TooSlowError) as error:
            text = "the daemon does not answer the helper"
            raise HelperRefusedError("unavailable", text, retry_after_s=1.0) from error
        if not reply.ok:
            text = f"the daemon refuses to {order.command}"
            raise HelperRefusedError(
                _KINDS.get(reply.code, "failed"),
                text if reply.error is UNSET else reply.error,
            )
        return reply


async def _read_request(stream: trio.SocketStream) -> HelperRequest | None:
    """Read the request of a connection; ``None`` if it ends before that.

    Raises:
        HelperRefusedError: it is too long, takes too long, or is not valid.
    """
    splitter = LineSplitter(HELPER_REQUEST_BYTES)
    with trio.move_on_after(HELPER_REQUEST_S):
        while True:
            data = await stream.receive_some(_READ_BYTES)
            if not data:
                return None
            splitter.feed(data)
            try:
                if (line := splitter.next_frame()) is not None:
                    return HELPER_REQUESTS.decode(line)
            except FrameTooLargeError as error:
                text = f"a request has at most {HELPER_REQUEST_BYTES} bytes"
                raise HelperRefusedError("invalid_request", text) from error
            except DECODE_FAILURES as error:
                raise HelperRefusedError(
                    "invalid_request", f"the request: {error}"
                ) from error
    raise HelperRefusedError(
        "invalid_request", f"the request took over {HELPER_REQUEST_S:g} s"
    )


async def _send(stream: trio.SocketStream, frame: HelperFrame) -> None:
    """Send a frame.

    Raises:
        BrokenResourceError: the other end is gone, or does not read.
    """
    with trio.move_on_after(HELPER_WRITE_S) as scope:
        await stream.send_all(helper_line(frame))
    if scope.cancelled_caught:
        raise trio.BrokenResourceError(f"no reader for {HELPER_WRITE_S:g} s")
