"""The admin socket: the present state, then every event, and answers to commands."""

from collections.abc import Callable

import trio

from inferd.errors import FrameTooLargeError
from inferd.limits import MAX_COMMAND_BYTES
from inferd.server.hangup import Hangups
from inferd.server.loop import Loop
from inferd.server.reading import read_or_fail
from inferd.server.status import Listener, StatusBoard
from inferd.server.surroundings import Surroundings
from inferd.wire.codec import encode
from inferd.wire.commands import Reply
from inferd.wire.framing import LineSplitter


async def serve_admin(
    stream: trio.SocketStream,
    board: StatusBoard,
    answer: Callable[[bytes], Reply],
    around: Surroundings,
) -> None:
    """Tell one listener, and answer what it asks.

    The listener gets EOF when it lags behind, or stops reading for ``write_timeout_s``.
    One that ends its own side goes on being told.

    Args:
        stream: to the listener.
        board: what it is told.
        answer: carries out a line of the listener's.
        around: gives a turn for each command, and notices that it has gone.

    Bounds:
        A reply may have megabytes: while one is not written, one more waits, and no further
        command is carried out.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, stream, around.hangups, nursery.cancel_scope)
        with board.listen() as listener:
            nursery.start_soon(_answer_all, stream, listener, answer, around.loop)
            async for frame in listener.frames:
                listener.took()
                try:
                    with trio.fail_after(around.limits.write_timeout_s):
                        await stream.send_all(frame)
                except (trio.TooSlowError, trio.BrokenResourceError):
                    break
            nursery.cancel_scope.cancel()


async def _answer_all(
    stream: trio.SocketStream,
    listener: Listener,
    answer: Callable[[bytes], Reply],
    loop: Loop,
) -> None:
    splitter = LineSplitter(MAX_COMMAND_BYTES)
    try:
        while data := await read_or_fail(stream, None, loop):
            splitter.feed(data)
            while (line := splitter.next_frame()) is not None:
                await loop.turn()
                listener.tell(encode(answer(line)))
                await listener.caught_up()
        if (line := splitter.last_frame()) is not None:
            listener.tell(encode(answer(line)))
    except FrameTooLargeError as error:
        listener.tell(encode(Reply(command="", ok=False, error=error.message)))
        listener.end()  # where the next line begins, nobody knows
    except (OSError, trio.ClosedResourceError):
        return


async def _watch(
    stream: trio.SocketStream, hangups: Hangups, scope: trio.CancelScope
) -> None:
    await hangups.wait(stream)
    scope.cancel()
