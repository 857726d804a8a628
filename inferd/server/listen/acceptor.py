"""Accept clients on all sockets, within access rules, connection limits and descriptors.

A refused client gets one frame, which fits the send buffer of a fresh connection. A few
refused clients are read for a moment before their connections are closed: a client that
gets EPIPE while it writes may not read the refusal. Further ones are closed at once, so
that a flood of connections takes few descriptors.
"""

import errno
import os
import socket
import time
from collections.abc import Awaitable, Callable, Collection
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
from inferd.limits.server import ACCEPTS_PER_PASS, LINGER_S, MAX_LINGERING
from inferd.server.connection.limit import ConnectionLease, ConnectionLimit
from inferd.server.connection.response_writer import error_frame
from inferd.server.event_loop.read import read_in_turn
from inferd.server.event_loop.scheduler import TASK_USER, LoopScheduler
from inferd.server.fd_passing.close import close_disconnected, close_socket
from inferd.server.identity.access import Access
from inferd.server.identity.mapping import Identities
from inferd.server.identity.peer import Peer, groups_of, peer_of
from inferd.server.listen.accept_budget import AcceptBudget
from inferd.server.listen.fd_budget import (
    ReserveFd,
    accept,
    is_disconnected,
    stream_of,
    try_accept,
)
from inferd.server.request_context import peer_fields, socket_fields
from inferd.server.telemetry.log_throttle import LogThrottle
from inferd.server.telemetry.metrics import Metrics
from inferd.surfaces import Surface
from inferd.wire.codec import encode
from inferd.wire.commands import Reply

log = structlog.get_logger("server")

Serve = Callable[[trio.SocketStream], Awaitable[None]]

RESOURCE_ERRNOS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
ACCEPT_RETRY_S: Final = 0.1
"""Seconds until the next ``accept`` where not even the reserve descriptor is available."""


class ListenerSpec(NamedTuple):
    """A listening socket: what serves its clients, and on which conditions."""

    surface: Surface
    serve: Serve
    connection_limit: ConnectionLimit
    encode_refusal: Callable[[InferdError], bytes]
    """Encodes the error for a refused client."""
    may_use_reserve_fd: bool
    """Whether clients of this socket may be served with the reserve descriptor."""
    mode: int
    """Mode of a socket that is bound here, as ``group``; an inherited one has its own."""
    group: str | None = None
    full_error: Callable[[], InferdError] = TooManyConnectionsError
    """Makes the error for a client over the connection limit."""

    @property
    def leaf(self) -> str:
        """File name of the socket."""
        return self.surface.socket


def refused_listener(
    surface: Surface,
    error: Callable[[], InferdError],
    encode_refusal: Callable[[InferdError], bytes],
) -> ListenerSpec:
    """Make the listener of an inherited socket that refuses every client.

    Args:
        surface: whose socket it is.
        error: makes the error that each client gets.
        encode_refusal: encodes it.
    """
    return ListenerSpec(
        surface,
        _serve_nothing,
        ConnectionLimit(0),
        encode_refusal,
        may_use_reserve_fd=False,
        mode=surface.mode,
        full_error=error,
    )


async def _serve_nothing(_: trio.SocketStream) -> None:
    """Stand for a handler where the connection limit is 0."""


def refusal_frame(error: InferdError) -> bytes:
    """Encode an error frame for a refused client of an inference socket."""
    return encode(error_frame("", error))


def refusal_reply(error: InferdError) -> bytes:
    """Encode an admin reply for a refused client; nothing for one over the limit."""
    if isinstance(error, TooManyConnectionsError):
        return b""
    return encode(Reply(command="", ok=False, error=error.message))


class Acceptor:
    """Accepts and refuses clients on all sockets.

    Args:
        metrics: counts refused clients.
        loop: schedules the start of a connection by user.
        clock: seconds of processor time.

    Bounds:
        Connections that wait to be started count towards the connection limit.
    """

    def __init__(
        self,
        metrics: Metrics,
        loop: LoopScheduler | None = None,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.access = Access()
        """The rules for who may connect; may be replaced at any time."""
        self.identities = Identities()
        """Maps uids to users; may be replaced at any time."""
        self.unserved: Collection[str] = frozenset()
        """File names of sockets that no backend serves now; their clients are refused. May be
        replaced at any time."""
        self._metrics = metrics
        self._reserve_fd = ReserveFd()
        self._loop = LoopScheduler() if loop is None else loop
        self._clock = clock
        self._budget = AcceptBudget()
        self._log_throttle = LogThrottle()
        self._unstarted: dict[socket.socket, AcceptedConnection] = {}
        self._one_started = trio.lowlevel.ParkingLot()
        self._n_lingering = 0

    def open(self) -> None:
        """Open the reserve descriptor; call ``close`` at the end."""
        self._reserve_fd.open()

    def close(self) -> None:
        """Close the reserve descriptor and the connections that are not started yet."""
        while self._unstarted:
            sock, accepted = self._unstarted.popitem()
            accepted.spec.connection_limit.release(accepted.lease)
            close_socket(sock)
        self._reserve_fd.close()

    async def accept_all(
        self,
        listener: trio.SocketListener,
        spec: ListenerSpec,
        clients: trio.Nursery,
        scope: trio.CancelScope,
    ) -> None:
        """Accept clients until the scope is cancelled, then close the listener.

        Connections are served in the nursery.
        """
        with scope:
            try:
                while True:
                    await trio.lowlevel.wait_readable(listener.socket)
                    if not self._accept_batch(listener, spec, clients):
                        await trio.sleep(ACCEPT_RETRY_S)
            finally:
                close_socket(listener.socket)

    def accept_pending(
        self, listener: trio.SocketListener, spec: ListenerSpec, clients: trio.Nursery
    ) -> None:
        """Accept the clients in the listener's backlog, and wait for no others."""
        while sock := try_accept(listener):
            self.handle(sock, spec, clients)

    def _accept_batch(
        self, listener: trio.SocketListener, spec: ListenerSpec, clients: trio.Nursery
    ) -> bool:
        """Accept clients from the backlog, as many as fit into one pass of the event loop.

        Returns:
            Whether to go on at once: false where no descriptor is available.
        """
        began = self._clock()
        end = began + self._budget.pass_s(trio.current_time())
        try:
            return self._accept_until(end, listener, spec, clients)
        finally:
            self._budget.spend(self._clock() - began)

    def _accept_until(
        self,
        end: float,
        listener: trio.SocketListener,
        spec: ListenerSpec,
        clients: trio.Nursery,
    ) -> bool:
        for _ in range(ACCEPTS_PER_PASS):
            try:
                sock = accept(listener)
            except OSError as error:
                if error.errno not in RESOURCE_ERRNOS:
                    raise
                code = errno.errorcode[error.errno]
                self._warn_throttled("descriptors.short", spec, code=code)
                return self._accept_with_reserve_fd(listener, spec, clients)
            if sock is None:
                break
            if is_disconnected(sock):  # at once: a flood of these must be cheap
                close_disconnected(sock)
            else:
                self.handle(sock, spec, clients)
            if self._clock() > end:
                break
        return True

    def _accept_with_reserve_fd(
        self, listener: trio.SocketListener, spec: ListenerSpec, clients: trio.Nursery
    ) -> bool:
        sock = self._reserve_fd.accept(listener)
        if sock is None:
            return False
        if spec.may_use_reserve_fd:
            self.handle(sock, spec, clients)
        else:
            self._send_refusal(
                sock, peer_of(sock, self.identities), spec, TooManyConnectionsError()
            )
            self._close(sock)
        return True

    def handle(
        self, sock: socket.socket, spec: ListenerSpec, clients: trio.Nursery
    ) -> None:
        """Start serving an accepted socket in its user's turn, or refuse it.

        Ownership: the socket is closed here in any case.
        """
        peer = peer_of(sock, self.identities)
        try:
            lease = self._admit(sock, peer, spec)
        except InferdError as error:
            self._send_refusal(sock, peer, spec, error)
            if self._reserve_fd.is_held and self._n_lingering < MAX_LINGERING:
                self._n_lingering += 1
                clients.start_soon(self._linger, sock)
            else:
                self._close(sock)
        else:
            accepted = AcceptedConnection(sock, peer, spec, lease)
            self._unstarted[sock] = accepted
            self._loop.call_later(peer.user, partial(self._start, accepted, clients))

    def _start(self, accepted: "AcceptedConnection", clients: trio.Nursery) -> None:
        """Start serving a connection unless its client has disconnected meanwhile."""
        if accepted.sock not in self._unstarted:
            return
        if is_disconnected(accepted.sock):
            self._remove_unstarted(accepted)
            accepted.spec.connection_limit.release(accepted.lease)
            self._close(accepted.sock)
        else:
            clients.start_soon(self._serve, accepted)

    def _remove_unstarted(self, accepted: "AcceptedConnection") -> None:
        del self._unstarted[accepted.sock]
        self._one_started.unpark_all()

    async def wait_started(self, *, by: float) -> None:
        """Wait until every admitted connection is served, or there is no more time.

        Args:
            by: on trio's clock, in seconds.
        """
        with trio.move_on_at(by):
            while self._unstarted:
                await self._one_started.park()

    def _admit(
        self, sock: socket.socket, peer: Peer, spec: ListenerSpec
    ) -> ConnectionLease:
        if not self.access.allows(spec.leaf, peer, lambda: groups_of(sock)):
            raise PermissionDeniedError(peer.uid, spec.leaf)
        if spec.leaf in self.unserved:
            raise UnservedError(spec.leaf)
        lease = spec.connection_limit.acquire(peer.user)
        if lease is None:
            raise spec.full_error()
        return lease

    def _send_refusal(
        self, sock: socket.socket, peer: Peer, spec: ListenerSpec, error: InferdError
    ) -> None:
        """Count and log a refusal, and send it to the client."""
        self._metrics.count_refused_connection(spec.leaf, error)
        self._warn_throttled("client.refused", spec, code=error.code.value, peer=peer)
        with suppress(OSError):  # it has disconnected already
            os.write(sock.fileno(), spec.encode_refusal(error))

    async def _linger(self, sock: socket.socket) -> None:
        stream = stream_of(sock)
        try:
            with trio.move_on_after(LINGER_S):
                while await read_in_turn(stream, None, self._loop):
                    pass
        finally:
            self._n_lingering -= 1
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        close_socket(sock)
        self._reserve_fd.restore()

    def _warn_throttled(
        self, event: str, spec: ListenerSpec, *, code: str, peer: Peer | None = None
    ) -> None:
        """Log the first of many events of one kind."""
        user = None if peer is None else peer.user
        key = (event, spec.leaf, code, user)
        if n := self._log_throttle.count(*key, now=trio.current_time()):
            fields = socket_fields(spec.surface) | (peer_fields(peer) if peer else {})
            log.warning(event, **fields, code=code, times=n)

    async def _serve(self, accepted: "AcceptedConnection") -> None:
        TASK_USER.set(accepted.peer.user)
        try:
            try:
                await self._loop.begin()
            finally:
                self._remove_unstarted(accepted)
            await accepted.spec.serve(stream_of(accepted.sock))
        except Exception:  # a bug in one connection must not affect others
            log.exception("client.crashed")
        finally:
            accepted.spec.connection_limit.release(accepted.lease)
            self._close(accepted.sock)


class AcceptedConnection(NamedTuple):
    """A connection that was admitted and is served, or about to be."""

    sock: socket.socket
    peer: Peer
    spec: ListenerSpec
    lease: ConnectionLease
