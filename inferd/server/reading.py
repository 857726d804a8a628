"""Read what a client has sent, in its user's turn."""

import os

import trio

from inferd.limits import READ_BYTES
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
        while (data := await _read(stream, parcels, loop)) is None:
            pass
    except (OSError, trio.ClosedResourceError):
        return b""
    return data


async def _read(
    stream: trio.SocketStream, parcels: Parcels | None, loop: Loop
) -> bytes | None:
    await trio.lowlevel.wait_readable(stream.socket)
    await loop.turn()
    try:
        if parcels is not None:
            return receive(stream, parcels)
        return os.read(stream.socket.fileno(), READ_BYTES)
    except BlockingIOError:  # somebody woke us for nothing
        return None
