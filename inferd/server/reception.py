"""Let clients in: those who may, as far as there are places and descriptors.

Who is turned away is told in one frame, which fits the buffer of a fresh connection. A few
of them may write what they came with before they go: a client whose pipe breaks at that may
not read why. The others are gone before the next one is accepted, so that a crowd of them
takes few descriptors.
"""

import errno
import os
import socket
import time
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
from inferd.server.access import Access
from inferd.server.activity import where, who
from inferd.server.closing import close_left, close_socket
from inferd.server.descriptors import Spare, accept, accept_now, has_left, stream_of
from inferd.server.identity import Identities
from inferd.server.limits import ACCEPT_S, ACCEPTS_A_PASS, HEARD_OUT_S, MAX_HEARD_OUT
from inferd.server.listen import INFERENCE_MODE
from inferd.server.loop import OWNER, Loop
from inferd.server.metrics import Metrics
from inferd.server.peer import Peer, groups_of, peer_of
from inferd.server.reading import read_in_turn
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
        loop: says when it is a user's turn.

    Bounds:
        Those who wait for their turn have their places.
    """

    def __init__(self, metrics: Metrics, loop: Loop | None = None) -> None:
        self.access = Access()
        """Who may come in; it may change."""
        self.identities = Identities()
        """As whom they count; it may change."""
        self._metrics = metrics
        self._spare = Spare()
        self._loop = Loop() if loop is None else loop
        self._seldom = Seldom()
        self._waiting: dict[socket.socket, Visit] = {}
        self._n_heard_out = 0

    def open(self) -> None:
        """Put a descriptor by; ``close`` it at the end."""
        self._spare.open()

    def close(self) -> None:
        """Give the descriptor up, and let those go whose turn has not come."""
        while self._waiting:
            sock, visit = self._waiting.popitem()
            visit.door.room.leave(visit.place)
            close_socket(sock)
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
        with scope:
            try:
                while True:
                    await trio.lowlevel.wait_readable(listener.socket)
                    if not self._receive_some(listener, door, clients):
                        await trio.sleep(SHORTAGE_PAUSE_S)
            finally:
                close_socket(listener.socket)

    def receive_waiting(
        self, listener: trio.SocketListener, door: Door, clients: trio.Nursery
    ) -> None:
        """Receive those who have come already, and wait for no others."""
        while sock := accept_now(listener):
            self.receive(sock, door, clients)

    def _receive_some(
        self, listener: trio.SocketListener, door: Door, clients: trio.Nursery
    ) -> bool:
        """Receive those who wait, as many as one pass of the event loop has room for.

        Returns:
            Whether to go on at once: false where there is no descriptor left.
        """
        end = time.thread_time() + ACCEPT_S
        for _ in range(ACCEPTS_A_PASS):
            try:
                sock = accept(listener)
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                code = errno.errorcode[error.errno]
                self._note("descriptors.short", door, code=code)
                return self._receive_by_spare(listener, door, clients)
            if sock is None:
                break
            if has_left(sock):  # at once: a flood of those has to cost little
                close_left(sock)
            else:
                self.receive(sock, door, clients)
            if time.thread_time() > end:
                break
        return True

    def _receive_by_spare(
        self, listener: trio.SocketListener, door: Door, clients: trio.Nursery
    ) -> bool:
        sock = self._spare.accept(listener)
        if sock is None:
            return False
        if door.is_kept_open:
            self.receive(sock, door, clients)
        else:
            self._tell(
                sock, peer_of(sock, self.identities), door, TooManyConnectionsError()
            )
            self._close(sock)
        return True

    def receive(self, sock: socket.socket, door: Door, clients: trio.Nursery) -> None:
        """Have one who has come in served in its user's turn, or turn it away.

        Ownership: the socket is closed here, whatever becomes of it.
        """
        peer = peer_of(sock, self.identities)
        try:
            place = self._place(sock, peer, door)
        except InferdError as error:
            self._tell(sock, peer, door, error)
            if self._spare.is_held and self._n_heard_out < MAX_HEARD_OUT:
                self._n_heard_out += 1
                clients.start_soon(self._hear_out, sock)
            else:
                self._close(sock)
        else:
            visit = Visit(sock, peer, door, place)
            self._waiting[sock] = visit
            self._loop.later(peer.user, partial(self._begin, visit, clients))

    def _begin(self, visit: "Visit", clients: trio.Nursery) -> None:
        """Have one served who has not left meanwhile."""
        if self._waiting.pop(visit.sock, None) is None:
            return
        if has_left(visit.sock):
            visit.door.room.leave(visit.place)
            self._close(visit.sock)
        else:
            clients.start_soon(self._serve, visit)

    def _place(self, sock: socket.socket, peer: Peer, door: Door) -> Place:
        if not self.access.allows(door.leaf, peer, lambda: groups_of(sock)):
            raise PermissionDeniedError(peer.uid, door.leaf)
        place = door.room.take(peer.user)
        if place is None:
            raise door.no_place()
        return place

    def _tell(
        self, sock: socket.socket, peer: Peer, door: Door, error: InferdError
    ) -> None:
        """Say why one is turned away."""
        self._metrics.count_turned_away(door.leaf, error)
        self._note("client.refused", door, code=error.code.value, peer=peer)
        with suppress(OSError):  # it has left already
            os.write(sock.fileno(), door.refusal(error))

    async def _hear_out(self, sock: socket.socket) -> None:
        stream = stream_of(sock)
        try:
            with trio.move_on_after(HEARD_OUT_S):
                while await read_in_turn(stream, None, self._loop):
                    pass
        finally:
            self._n_heard_out -= 1
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        close_socket(sock)
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

    async def _serve(self, visit: "Visit") -> None:
        OWNER.set(visit.peer.user)
        try:
            await visit.door.serve(stream_of(visit.sock))
        except Exception:  # a bug in one connection is nobody else's affair
            log.exception("client.crashed")
        finally:
            visit.door.room.leave(visit.place)
            self._close(visit.sock)


class Visit(NamedTuple):
    """One who has been let in."""

    sock: socket.socket
    peer: Peer
    door: Door
    place: Place
