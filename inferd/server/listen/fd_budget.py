"""Divide this process's file descriptors among their uses, and keep one in reserve."""

import fcntl
import os
import resource
import select
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import trio

from inferd.limits.server import (
    BACKEND_DESCRIPTORS,
    CLIENT_DESCRIPTORS_PART,
    DAEMON_DESCRIPTORS,
    MAX_CLIENT_DESCRIPTORS,
    RESERVED_CONNECTIONS_DIVISOR,
)
from inferd.server.connection.limit import n_reserved

ADMIN_PART: Final = 4
"""Where descriptors are scarce, one in this many is for an admin connection."""

MEDIA_PART: Final = 8
"""Where descriptors are scarce, one in this many is for an attachment's file."""

_NO_BOUND: Final = 2**31


class FdAllocation(NamedTuple):
    """Descriptors by use: connections, not counting reserved ones, and attachments."""

    clients: int
    admin_clients: int
    media: int = 0
    """Attachments of requests that are held at once."""

    @property
    def descriptors(self) -> int:
        """Descriptors that this allocation uses, including reserved connections."""
        return self.media + sum(
            each + n_reserved(each) for each in (self.clients, self.admin_clients)
        )


def fd_limit() -> int:
    """Get the soft limit on this process's open descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _NO_BOUND if soft == resource.RLIM_INFINITY else soft


def passed_fd_limit(n_descriptors: int) -> int:
    """Compute how many descriptors that clients passed may be open here at once."""
    return min(MAX_CLIENT_DESCRIPTORS, n_descriptors // CLIENT_DESCRIPTORS_PART)


def allocate_fds(
    n_descriptors: int, wanted: FdAllocation, *, n_backends: int
) -> FdAllocation:
    """Allocate the wanted descriptors, or fewer where the limit is lower.

    Where descriptors are scarce, admin connections get a quarter, so that an operator can
    always connect. Attachments that are held get an eighth; descriptors that clients pass
    have another eighth in any case.

    Raises:
        ValueError: there are too few for one client and one admin connection.
    """
    needed = _n_unavailable(n_descriptors, n_backends)
    left = n_descriptors - needed
    if wanted.descriptors <= left:
        return wanted
    if left < FdAllocation(1, 1).descriptors:
        n_least = needed + FdAllocation(1, 1).descriptors
        raise ValueError(
            f"open files = {n_descriptors}: at least {n_least} are needed with this "
            "configuration (ulimit -n, LimitNOFILE=)"
        )
    admin_clients = min(wanted.admin_clients, max(1, left // ADMIN_PART - 1))
    media = min(wanted.media, left // MEDIA_PART)
    left -= admin_clients + n_reserved(admin_clients) + media
    clients = max(
        1, left * RESERVED_CONNECTIONS_DIVISOR // (RESERVED_CONNECTIONS_DIVISOR + 1)
    )
    return FdAllocation(min(wanted.clients, clients), admin_clients, media)


def _n_unavailable(n_descriptors: int, n_backends: int) -> int:
    """Count the descriptors that are for neither connections nor held attachments."""
    own = DAEMON_DESCRIPTORS + BACKEND_DESCRIPTORS * n_backends
    return own + passed_fd_limit(n_descriptors)


def presize_fd_table(
    n_descriptors: int, allocation: FdAllocation, *, n_backends: int
) -> None:
    """Have the kernel enlarge its descriptor table to the final size at once.

    The kernel doubles the table when it is full, and a process with threads waits some 15
    ms for each enlargement: five times while one user opens a thousand connections. Where
    the kernel has no memory for it, the table grows as usual.
    """
    n_wanted = _n_unavailable(n_descriptors, n_backends) + allocation.descriptors
    last = min(n_wanted, n_descriptors) - 1
    with suppress(OSError), Path(os.devnull).open("rb") as any_file:
        os.close(fcntl.fcntl(any_file, fcntl.F_DUPFD_CLOEXEC, last))


class ReserveFd:
    """A descriptor held in reserve, so that one more connection can be accepted.

    When no other descriptor is available, the reserve is closed and the connection takes
    its number, either to be refused with an error or to be served. The reserve is opened
    again as soon as a descriptor is available.
    """

    def __init__(self) -> None:
        self._fd: int | None = None
        self._is_open = False

    @property
    def is_held(self) -> bool:
        """Whether the reserve descriptor is open."""
        return self._fd is not None

    def open(self) -> None:
        """Open the reserve, and reopen it on ``restore`` until it is closed."""
        self._is_open = True
        self.restore()

    def restore(self) -> None:
        """Open the reserve again if it was used and a descriptor is available."""
        if self._fd is None and self._is_open:
            try:
                self._fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return

    def close(self) -> None:
        """Close the reserve for good."""
        self._is_open = False
        self._release()

    def _release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def accept(self, listener: trio.SocketListener) -> socket.socket | None:
        """Accept a client with the reserve descriptor; ``None`` where that fails.

        The event loop runs no other task in between, so no other task can take the
        descriptor.
        """
        self.restore()
        if self._fd is None:
            return None
        self._release()
        sock = try_accept(listener)
        if sock is None:
            self.restore()
        return sock


def accept(listener: trio.SocketListener) -> socket.socket | None:
    """Accept a client from the backlog; ``None`` where it is empty.

    Raises:
        OSError: ``accept`` failed, for want of descriptors among other reasons.
    """
    if (fd := listener.socket.fileno()) < 0:
        return None  # the listener is closed
    # trio's socket would wait; family and type are given to save three system calls
    borrowed = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=fd)
    try:
        connection, _ = borrowed.accept()
    except (BlockingIOError, ConnectionAbortedError):
        return None
    finally:
        borrowed.detach()
    connection.setblocking(False)  # noqa: FBT003  # socket's own signature
    return connection


def try_accept(listener: trio.SocketListener) -> socket.socket | None:
    """Accept a client from the backlog; ``None`` where it is empty or ``accept`` failed."""
    try:
        return accept(listener)
    except OSError:
        return None


def stream_of(sock: socket.socket) -> trio.SocketStream:
    """Make a trio stream of a socket."""
    return trio.SocketStream(trio.socket.from_stdlib_socket(sock))


def is_disconnected(sock: socket.socket) -> bool:
    """Tell whether the peer has closed the connection in both directions."""
    poll = select.poll()
    poll.register(sock, 0)
    return bool(poll.poll(0))
