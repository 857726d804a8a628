"""Read from a client's socket in its user's turn on the event loop."""

import os
from contextlib import suppress

import trio

from inferd.limits.connections import READ_BYTES
from inferd.server.event_loop.scheduler import LoopScheduler
from inferd.server.fd_passing.close import SYSCALL_TIMER
from inferd.server.fd_passing.receive import FdsByLine, receive_with_fds


async def read_in_turn(
    stream: trio.SocketStream, fds_by_line: FdsByLine | None, loop: LoopScheduler
) -> bytes:
    """Wait for input and for the user's turn; then read.

    Args:
        stream: to the client.
        fds_by_line: receives descriptors, where clients may pass them.
        loop: schedules by user.

    Returns:
        Bytes; empty at EOF and where the connection is broken, which a write or the
        disconnect watch will report.

    Cancellation: nothing that was read is lost.
    """
    try:
        return await read_or_raise(stream, fds_by_line, loop)
    except (OSError, trio.ClosedResourceError):
        return b""


async def read_or_raise(
    stream: trio.SocketStream, fds_by_line: FdsByLine | None, loop: LoopScheduler
) -> bytes:
    """Read as ``read_in_turn`` does, but raise where the connection is broken.

    Raises:
        OSError: the connection is broken.
        trio.ClosedResourceError: the stream was closed meanwhile.
    """
    while True:
        await trio.lowlevel.wait_readable(stream.socket)
        await loop.turn()
        with suppress(BlockingIOError):  # a spurious wake-up
            if fds_by_line is not None:
                return receive_with_fds(stream, fds_by_line)
            with SYSCALL_TIMER:  # the kernel closes descriptors that were passed
                return os.read(stream.socket.fileno(), READ_BYTES)
