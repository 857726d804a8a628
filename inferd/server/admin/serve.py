"""The admin socket: the status, then every change of it, and replies to commands."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import trio

from inferd.config.settings import Config
from inferd.errors import FrameTooLargeError
from inferd.limits.protocol import MAX_COMMAND_BYTES
from inferd.server.connection.deps import ConnectionDeps
from inferd.server.connection.disconnect_watch import DisconnectWatch
from inferd.server.connection.limit import ConnectionLimit
from inferd.server.event_loop.read import read_or_raise
from inferd.server.event_loop.scheduler import LoopScheduler
from inferd.server.listen.acceptor import ListenerSpec, Serve, refusal_reply
from inferd.server.telemetry.status import StatusBoard, StatusSubscriber
from inferd.surfaces import ADMIN, INFERENCE_MODE
from inferd.wire.codec import encode
from inferd.wire.commands import Reply
from inferd.wire.framing import LineSplitter


class AdminClients:
    """The clients of the admin socket that are served now."""

    def __init__(self) -> None:
        self._n = 0
        self._left = trio.lowlevel.ParkingLot()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count one while inside."""
        self._n += 1
        try:
            yield
        finally:
            self._n -= 1
            self._left.unpark_all()

    async def wait_gone(self) -> None:
        """Wait until there is none."""
        while self._n:
            await self._left.park()


def admin_spec(config: Config, limit: ConnectionLimit, serve: Serve) -> ListenerSpec:
    """Describe the admin socket, which others may enter if the configuration has a rule.

    Args:
        config: with the rule.
        limit: of its connections.
        serve: serves one client.
    """
    is_shared = config.access.admin is not None
    return ListenerSpec(
        ADMIN,
        serve,
        limit,
        refusal_reply,
        may_use_reserve_fd=True,
        mode=INFERENCE_MODE if is_shared else ADMIN.mode,
        group=config.listen.group if is_shared else None,
    )


async def serve_admin(
    stream: trio.SocketStream,
    board: StatusBoard,
    answer: Callable[[bytes], Awaitable[Reply]],
    deps: ConnectionDeps,
) -> None:
    """Send status frames to one client, and reply to its commands.

    The client gets EOF when it lags behind, or stops reading for ``write_timeout_s``. One
    that shuts down its own side gets it after the replies to its commands; without a command
    it still gets status frames.

    Args:
        stream: to the client.
        board: publishes the status.
        answer: carries out one line of the client's.
        deps: schedule each command on the event loop, and detect a disconnect.

    Bounds:
        A reply may have megabytes: while one is being sent, one more is queued, and no
        further command is carried out.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, stream, deps.disconnects, nursery.cancel_scope)
        with board.subscribe() as subscriber:
            nursery.start_soon(_answer_all, stream, subscriber, answer, deps.loop)
            async for frame in subscriber.frames:
                subscriber.mark_taken()
                try:
                    with trio.fail_after(deps.limits.write_timeout_s):
                        await stream.send_all(frame)
                except (trio.TooSlowError, trio.BrokenResourceError):
                    break
            nursery.cancel_scope.cancel()


async def _answer_all(
    stream: trio.SocketStream,
    subscriber: StatusSubscriber,
    answer: Callable[[bytes], Awaitable[Reply]],
    loop: LoopScheduler,
) -> None:
    splitter = LineSplitter(MAX_COMMAND_BYTES)
    has_asked = False
    try:
        while data := await read_or_raise(stream, None, loop):
            splitter.feed(data)
            while (line := splitter.next_frame()) is not None:
                has_asked = True
                await loop.turn()
                subscriber.send(encode(await answer(line)))
                await subscriber.wait_drained()
        if (line := splitter.last_frame()) is not None:
            has_asked = True
            subscriber.send(encode(await answer(line)))
        if has_asked:
            subscriber.close()
    except FrameTooLargeError as error:
        subscriber.send(encode(Reply(command="", ok=False, error=error.message)))
        subscriber.close()  # the start of the next line is unknown
    except (OSError, trio.ClosedResourceError):
        return


async def _watch(
    stream: trio.SocketStream, disconnects: DisconnectWatch, scope: trio.CancelScope
) -> None:
    await disconnects.wait(stream)
    scope.cancel()
