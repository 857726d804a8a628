"""Close descriptors that clients passed, although ``close`` may block.

A client chooses what it passes: a socket with ``SO_LINGER`` blocks in ``close`` until its
data is read, and a file on the client's own FUSE file system until that answers. The
process that closes the last copy blocks, even if it never received the descriptor from the
socket's buffer. So received descriptors are closed in a thread, and where the kernel closes
unreceived ones, it is interrupted by a timer.
"""

import fcntl
import os
import signal
import socket
import termios
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import trio

from inferd.limits.server import CLOSE_RETRY_S, CLOSE_TIMEOUT_S

_SIGNAL: Final = signal.SIGALRM
_TIMER: Final = signal.ITIMER_REAL
_INT_BYTES: Final = 4


class SyscallTimer:
    """Interval timer that interrupts blocking system calls; not to be nested."""

    def __init__(self) -> None:
        self._is_enabled = False

    @contextmanager
    def enabled(self) -> Iterator[None]:
        """Install the signal handler while inside; only the main thread can."""
        is_main = threading.current_thread() is threading.main_thread()
        if self._is_enabled or not is_main:
            yield
            return
        before = signal.signal(_SIGNAL, _ignore_signal)
        self._is_enabled = True
        try:
            yield
        finally:
            self._is_enabled = False
            signal.signal(_SIGNAL, before)

    def __enter__(self) -> None:
        """Start the timer: system calls are interrupted after ``CLOSE_TIMEOUT_S``."""
        if self._is_enabled:
            signal.setitimer(_TIMER, CLOSE_TIMEOUT_S, CLOSE_RETRY_S)

    def __exit__(self, *_: object) -> None:
        """Stop the timer."""
        if self._is_enabled:
            signal.setitimer(_TIMER, 0)


SYSCALL_TIMER: Final = SyscallTimer()
"""The only one, as a process has one such timer. Use it around calls in which the kernel
may close descriptors from a client: reading without ancillary space, closing a
connection."""


def _ignore_signal(*_: object) -> None:
    """Do nothing: the signal only has to interrupt the system call."""


def close_memfds(fds: Iterable[int]) -> list[int]:
    """Close the memfds among descriptors, which never blocks; return the others."""
    others = []
    for fd in fds:
        try:
            fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        except OSError:
            others.append(fd)
        else:
            os.close(fd)
    return others


def close_in_thread(fds: Iterable[int]) -> threading.Thread | None:
    """Close descriptors in a daemon thread, which may block forever.

    Ownership: the thread owns the descriptors; nothing joins it at exit.

    Returns:
        The thread; ``None`` where none could be started and they were closed here.
    """
    owned = tuple(fds)
    thread = threading.Thread(target=_close_each, args=(owned,), daemon=True)
    try:
        thread.start()
    except RuntimeError:
        with SYSCALL_TIMER:
            _close_each(owned)
        return None
    return thread


def _close_each(fds: Iterable[int]) -> None:
    for fd in fds:
        with suppress(OSError):  # any error of its file system; it is closed
            os.close(fd)


def close_disconnected(sock: socket.socket) -> None:
    """Close a socket whose peer has disconnected, and so can send nothing more."""
    if _has_unread(sock):
        close_socket(sock)
    else:  # setting a timer takes as long as everything else here
        sock.close()


def close_socket(sock: socket.socket | trio.socket.SocketType) -> None:
    """Close a socket, and with it passed descriptors that were not received."""
    with SYSCALL_TIMER:
        sock.close()


def _has_unread(sock: socket.socket) -> bool:
    """Tell whether there are unread bytes; descriptors come with at least one."""
    return any(fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(_INT_BYTES)))
