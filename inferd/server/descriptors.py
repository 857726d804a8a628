"""Open files, of which a process may have so many: who gets them, and one to spare."""

import fcntl
import os
import resource
import select
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import trio

from inferd.server.limits import (
    BACKEND_DESCRIPTORS,
    CLIENT_DESCRIPTORS_PART,
    DAEMON_DESCRIPTORS,
    MAX_CLIENT_DESCRIPTORS,
    SPARE_PLACES_PART,
)
from inferd.server.room import n_spare

LISTENERS_PART: Final = 4
"""Of so many descriptors one is for a listener, where there are few."""

MEDIA_PART: Final = 8
"""Of so many descriptors one is for a medium, where there are few."""

_NO_BOUND: Final = 2**31


class Places(NamedTuple):
    """Connections there may be, the spare ones apart."""

    clients: int
    listeners: int
    media: int = 0
    """Attachments of requests, held at once."""

    @property
    def descriptors(self) -> int:
        """What they take with the spare ones."""
        return self.media + sum(
            each + n_spare(each) for each in (self.clients, self.listeners)
        )


def n_allowed() -> int:
    """Tell how many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _NO_BOUND if soft == resource.RLIM_INFINITY else soft


def n_for_media(n_descriptors: int) -> int:
    """Tell how many descriptors clients may have open here, of all there are."""
    return min(MAX_CLIENT_DESCRIPTORS, n_descriptors // CLIENT_DESCRIPTORS_PART)


def share_out(n_descriptors: int, wanted: Places, *, n_backends: int) -> Places:
    """Give as many places as are wanted, or as there are descriptors for.

    Where they are few, listeners get a quarter: they are the operator's way in. Media that
    are held get an eighth, and another is left to what clients pass, whatever else there is.

    Raises:
        ValueError: there are not even enough for one client and one listener.
    """
    needed = _n_besides(n_descriptors, n_backends)
    left = n_descriptors - needed
    if wanted.descriptors <= left:
        return wanted
    if left < Places(1, 1).descriptors:
        n_least = needed + Places(1, 1).descriptors
        raise ValueError(
            f"open files = {n_descriptors}: at least {n_least} are needed with this "
            "configuration (ulimit -n, LimitNOFILE=)"
        )
    listeners = min(wanted.listeners, max(1, left // LISTENERS_PART - 1))
    media = min(wanted.media, left // MEDIA_PART)
    left -= listeners + n_spare(listeners) + media
    clients = max(1, left * SPARE_PLACES_PART // (SPARE_PLACES_PART + 1))
    return Places(min(wanted.clients, clients), listeners, media)


def _n_besides(n_descriptors: int, n_backends: int) -> int:
    """Tell how many are needed besides those of places."""
    own = DAEMON_DESCRIPTORS + BACKEND_DESCRIPTORS * n_backends
    return own + n_for_media(n_descriptors)


def widen_table(n_descriptors: int, places: Places, *, n_backends: int) -> None:
    """Have the kernel make room for all descriptors there will be, at once.

    It doubles its table as that is full, and a process with threads waits some 15 ms for
    each time: five of them while one user makes a thousand connections. Where it has no
    memory for it, that is how it will be.
    """
    n_wanted = _n_besides(n_descriptors, n_backends) + places.descriptors
    last = min(n_wanted, n_descriptors) - 1
    with suppress(OSError), Path(os.devnull).open("rb") as any_one:
        os.close(fcntl.fcntl(any_one, fcntl.F_DUPFD_CLOEXEC, last))


class Spare:
    """A descriptor that is held, so that one more connection can be accepted.

    When there are no others, it is closed and the connection takes its place: to be told
    that there is no room, or to be served, and then the descriptor is had again as soon
    as there is one.
    """

    def __init__(self) -> None:
        self._fd: int | None = None
        self._is_wanted = False

    @property
    def is_held(self) -> bool:
        """Tell whether there is one to spare."""
        return self._fd is not None

    def open(self) -> None:
        """Hold one from here on, until it is closed."""
        self._is_wanted = True
        self.restore()

    def restore(self) -> None:
        """Hold one again, if one is wanted and to be had."""
        if self._fd is None and self._is_wanted:
            try:
                self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return

    def close(self) -> None:
        """Hold none any more."""
        self._is_wanted = False
        self._give_up()

    def _give_up(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def accept(self, listener: trio.SocketListener) -> socket.socket | None:
        """Accept one who waits, in place of the descriptor; ``None`` where that fails.

        Nothing else happens between the two: nobody can take the place.
        """
        self.restore()
        if self._fd is None:
            return None
        self._give_up()
        sock = accept_now(listener)
        if sock is None:
            self.restore()
        return sock


def accept(listener: trio.SocketListener) -> socket.socket | None:
    """Accept one who waits already; ``None`` where nobody does.

    Raises:
        OSError: that fails; for want of descriptors, among others.
    """
    if (fd := listener.socket.fileno()) < 0:
        return None  # it is closed
    # trio's would wait; what it is, is told here to spare three calls of the kernel
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=fd)
    try:
        connection, _ = ours.accept()
    except (BlockingIOError, ConnectionAbortedError):
        return None
    finally:
        ours.detach()
    connection.setblocking(False)  # noqa: FBT003  # socket's own signature
    return connection


def accept_now(listener: trio.SocketListener) -> socket.socket | None:
    """Accept one who waits already; ``None`` where nobody does, or where that fails."""
    try:
        return accept(listener)
    except OSError:
        return None


def stream_of(sock: socket.socket) -> trio.SocketStream:
    """Have a socket read and written on the event loop."""
    return trio.SocketStream(trio.socket.from_stdlib_socket(sock))


def has_left(sock: socket.socket) -> bool:
    """Tell whether a client has closed the connection whole: nobody reads an answer."""
    look = select.poll()
    look.register(sock, 0)
    return bool(look.poll(0))
