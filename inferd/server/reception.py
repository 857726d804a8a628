"""Let clients in: those who may, as far as there are places and descriptors.

Who is turned away is told in one frame, which fits the buffer of a fresh connection. A few
of them may write what they came with before they go: a client whose pipe breaks at that may
not read why. The others are gone before the next one is accepted, so that a crowd of them
takes few descriptors.
"""

import errno
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import structlog
import trio

from inferd.errors import (
    InferdError,
    PermissionDeniedError,
    TooManyConnectionsError,
    UnservedError,
)
from inferd.limits import READ_BYTES
from inferd.server.access import Access
from inferd.server.activity import where, who
from inferd.server.descriptors import Spare, accept_now
from inferd.server.identity import Identities
from inferd.server.limits import HEARD_OUT_S, MAX_HEARD_OUT
from inferd.server.listen import INFERENCE_MODE
from inferd.server.metrics import Metrics
from inferd.server.peer import Peer, groups_of, peer_of
from inferd.server.reply import error_frame
from inferd.server.room import Place, Room
from inferd.server.seldom import Seldom
from inferd.wire.codec import encode
from inferd.wire.commands import Reply

log = structlog.get_logger("server")

Serve = Callable[[trio.SocketStream], Awaitable[None]]

SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
SHORTAGE_PAUSE_S: Final = 0.1
"""Seconds after which to try again where not even the spare descriptor is left."""


class Door(NamedTuple):
    """A socket, as those who come in by it see it."""

    leaf: str
    serve: Serve
    room: Room
    refusal: Callable[[InferdError], bytes]
    """What is said to one who is turned away."""
    is_kept_open: bool
    """Whether the spare descriptor is for those who come in here."""
    mode: int
    """Of a socket of our own, as its group; an inherited one has them already."""
    group: str | None = None
    no_place: Callable[[], InferdError] = TooManyConnectionsError
    """Why there is no place for somebody."""


def unserved(leaf: str) -> Door:
    """Make the door of a socket that is there, and that no backend serves."""
    return Door(
        leaf,
        _serve_nobody,
        Room(0),
        in_a_frame,
        is_kept_open=False,
        mode=INFERENCE_MODE,
        no_place=partial(UnservedError, leaf),
    )


async def _serve_nobody(_: trio.SocketStream) -> None:
    """Be what serves where there is no place."""


def in_a_frame(error: InferdError) -> bytes:
    """Say why, to a client."""
    return encode(error_frame("", error))


def in_a_reply(error: InferdError) -> bytes:
    """Say who may not come in; a listener too many hears nothing, as it always did."""
    if isinstance(error, TooManyConnectionsError):
        return b""
    return encode(Reply(command="", ok=False, error=error.message))


class Reception:
    """Receives those who come, on all sockets.

    Args:
        metrics: counts those who are turned away.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.access = Access()
        """Who may come in; it may change."""
        self.identities = Identities()
        """As whom they count; it may change."""
        self._metrics = metrics
        self._spare = Spare()
        self._seldom = Seldom()
        self._n_heard_out = 0

    def open(self) -> None:
        """Put a descriptor by; ``close`` it at the end."""
        self._spare.open()

    def close(self) -> None:
        """Give the descriptor up."""
        self._spare.close()

    async def receive_all(
        self,
        listener: trio.SocketListener,
        door: Door,
        clients: trio.Nursery,
        scope: trio.CancelScope,
    ) -> None:
        """Accept until the scope is cancelled, and close the listener then.

        Those who are let in are served in the nursery.
        """
        with scope, listener.socket:
            while True:
                if stream := await self._accept(listener, door):
                    self.receive(stream, door, clients)

    def receive_waiting(
        self, listener: trio.SocketListener, door: Door, clients: trio.Nursery
    ) -> None:
        """Receive those who have come already, and wait for no others."""
        while stream := accept_now(listener):
            self.receive(stream, door, clients)

    def receive(
        self, stream: trio.SocketStream, door: Door, clients: trio.Nursery
    ) -> None:
        """Have one who has come in served, or turn it away. Either way it goes."""
        try:
            place = self._place(stream, door)
        except InferdError as error:
            self._tell(stream, door, error)
            if self._spare.is_held and self._n_heard_out < MAX_HEARD_OUT:
                self._n_heard_out += 1
                clients.start_soon(self._hear_out, stream)
            else:
                self._close(stream)
        else:
            clients.start_soon(self._serve, stream, door, place)

    async def _accept(
        self, listener: trio.SocketListener, door: Door
    ) -> trio.SocketStream | None:
        try:
            return await listener.accept()
        except OSError as error:
            if error.errno not in SHORTAGES:
                raise
            self._note("descriptors.short", door, code=errno.errorcode[error.errno])
        stream = self._spare.accept(listener)
        if stream is None:
            await trio.sleep(SHORTAGE_PAUSE_S)
        elif not door.is_kept_open:
            self._tell(stream, door, TooManyConnectionsError())
            self._close(stream)
            stream = None
        return stream

    def _place(self, stream: trio.SocketStream, door: Door) -> Place:
        peer = peer_of(stream, self.identities)
        if not self.access.allows(door.leaf, peer, lambda: groups_of(stream)):
            raise PermissionDeniedError(peer.uid, door.leaf)
        place = door.room.take(peer.user)
        if place is None:
            raise door.no_place()
        return place

    def _tell(self, stream: trio.SocketStream, door: Door, error: InferdError) -> None:
        """Say why one is turned away."""
        self._metrics.count_turned_away(door.leaf, error)
        peer = peer_of(stream, self.identities)
        self._note("client.refused", door, code=error.code.value, peer=peer)
        with suppress(OSError):  # it has left already
            os.write(stream.socket.fileno(), door.refusal(error))

    async def _hear_out(self, stream: trio.SocketStream) -> None:
        try:
            with trio.move_on_after(HEARD_OUT_S), suppress(trio.BrokenResourceError):
                while await stream.receive_some(READ_BYTES):
                    pass
        finally:
            self._n_heard_out -= 1
            self._close(stream)

    def _close(self, stream: trio.SocketStream) -> None:
        stream.socket.close()
        self._spare.restore()

    def _note(
        self, event: str, door: Door, *, code: str, peer: Peer | None = None
    ) -> None:
        """Write a line of the log for the first of many."""
        user = None if peer is None else peer.user
        kind = (event, door.leaf, code, user)
        if n := self._seldom.count(*kind, now=trio.current_time()):
            known = where(door.leaf) | (who(peer) if peer else {})
            log.warning(event, **known, code=code, times=n)

    async def _serve(self, stream: trio.SocketStream, door: Door, place: Place) -> None:
        try:
            await door.serve(stream)
        except Exception:  # a bug in one connection is nobody else's affair
            log.exception("client.crashed")
        finally:
            door.room.leave(place)
            self._close(stream)
