"""Room for a number of clients; the next one is told that there is none."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import structlog
import trio

from inferd.errors import InferdError, TooManyConnectionsError, UnservedError
from inferd.limits import READ_BYTES
from inferd.server.reply import PeerGoneError, Reply

log = structlog.get_logger("server")

Serve = Callable[[trio.SocketStream], Awaitable[None]]

REFUSAL_S = 1.0
"""Seconds a client gets to read why it is not served."""


class Room:
    """Places for connections, shared by any number of sockets."""

    def __init__(self, n_places: int) -> None:
        self._n_free = n_places

    @contextmanager
    def enter(self) -> Iterator[bool]:
        """Take a place while inside; false if there is none."""
        has_place = self._n_free > 0
        self._n_free -= has_place
        try:
            yield has_place
        finally:
            self._n_free += has_place


async def refuse_with_a_frame(stream: trio.SocketStream) -> None:
    """Tell a client that there is no room for it."""
    await _refuse(TooManyConnectionsError(), stream)


def refuse_unserved(leaf: str) -> Serve:
    """Tell every client of a socket that nobody serves it.

    It may write what it came with meanwhile: a client whose pipe breaks at that may not
    read why.
    """

    async def refuse(stream: trio.SocketStream) -> None:
        await _refuse(UnservedError(leaf), stream)
        with trio.move_on_after(REFUSAL_S), suppress(trio.BrokenResourceError):
            while await stream.receive_some(READ_BYTES):
                pass

    return refuse


async def _refuse(error: InferdError, stream: trio.SocketStream) -> None:
    log.warning("client.refused", code=error.code.value)
    try:
        await Reply(stream, "", write_timeout_s=REFUSAL_S).fail(error)
    except PeerGoneError:
        return


async def refuse_in_silence(_: trio.SocketStream) -> None:
    """Say nothing: a listener of the admin socket expects no errors."""
    log.warning("listener.refused", code=TooManyConnectionsError.code.value)


def in_room(room: Room, serve: Serve, refuse: Serve = refuse_with_a_frame) -> Serve:
    """Serve a client if there is a place for it; else refuse it. Either way it goes."""

    async def welcome(stream: trio.SocketStream) -> None:
        with room.enter() as has_place:
            try:
                await (serve if has_place else refuse)(stream)
            except Exception:  # a bug in one connection is nobody else's affair
                log.exception("client.crashed")

    return welcome
