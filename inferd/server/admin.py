"""The admin socket: the present state, then every event, until somebody leaves."""

import trio

from inferd.server.hangup import Hangups
from inferd.server.status import StatusBoard


async def serve_admin(
    stream: trio.SocketStream,
    board: StatusBoard,
    *,
    hangups: Hangups,
    write_timeout_s: float,
) -> None:
    """Tell one listener; what it sends is never read.

    The listener gets EOF when it lags behind, or stops reading for ``write_timeout_s``.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, stream, hangups, nursery.cancel_scope)
        with board.listen() as frames:
            async for frame in frames:
                try:
                    with trio.fail_after(write_timeout_s):
                        await stream.send_all(frame)
                except (trio.TooSlowError, trio.BrokenResourceError):
                    break
        nursery.cancel_scope.cancel()


async def _watch(
    stream: trio.SocketStream, hangups: Hangups, scope: trio.CancelScope
) -> None:
    await hangups.wait(stream)
    scope.cancel()
