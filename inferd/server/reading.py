"""Read what a client has sent, in its user's turn."""

import os

import trio

from inferd.limits import READ_BYTES
from inferd.server.closing import INTERRUPTED
from inferd.server.loop import Loop
from inferd.server.parcels import Parcels, receive


async def read_in_turn(
    stream: trio.SocketStream, parcels: Parcels | None, loop: Loop
) -> bytes:
    """Wait until there is something, and until it is the caller's turn; then read it.

    Args:
        stream: to the client.
        parcels: take descriptors, where they may come along.
        loop: gives turns.

    Returns:
        Some bytes; none stand for the end, or for a client that is gone: who writes to it,
        or watches it, will find out.

    Cancellation: nothing that was read is lost.
    """
    try:
        return await read_or_fail(stream, parcels, loop)
    except (OSError, trio.ClosedResourceError):
        return b""


async def read_or_fail(
    stream: trio.SocketStream, parcels: Parcels | None, loop: Loop
) -> bytes:
    """Read as ``read_in_turn`` does, but tell where the client is gone.

    Raises:
        OSError: the connection is gone.
        trio.ClosedResourceError: it is closed meanwhile.
    """
    while (data := await _read(stream, parcels, loop)) is None:
        pass
    return data


async def _read(
    stream: trio.SocketStream, parcels: Parcels | None, loop: Loop
) -> bytes | None:
    await trio.lowlevel.wait_readable(stream.socket)
    await loop.turn()
    try:
        if parcels is not None:
            return receive(stream, parcels)
        with INTERRUPTED:  # the kernel closes descriptors that came along
            return os.read(stream.socket.fileno(), READ_BYTES)
    except BlockingIOError:  # somebody woke us for nothing
        return None
