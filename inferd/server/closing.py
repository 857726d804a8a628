"""Close what clients have handed over, though the kernel may wait meanwhile.

A descriptor is whatever its client wanted it to be: a socket with ``SO_LINGER`` waits in
``close`` until somebody reads what it has sent, and a file of a file system of the client's
own until that answers. It waits in whichever process closes it last, also where it only
came with bytes and was never taken out. So what was taken out is closed by a thread, and
what the kernel closes by itself is interrupted.
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

from inferd.server.limits import CLOSE_AGAIN_S, CLOSE_S

_SIGNAL: Final = signal.SIGALRM
_TIMER: Final = signal.ITIMER_REAL
_INT_BYTES: Final = 4


class Interrupted:
    """Bounds what the kernel waits for inside it; not to be nested."""

    def __init__(self) -> None:
        self._is_on = False

    @contextmanager
    def on(self) -> Iterator[None]:
        """Have waiting interrupted while inside: by a signal, so on the main thread alone."""
        if self._is_on or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(_SIGNAL, _nothing)
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False
            signal.signal(_SIGNAL, before)

    def __enter__(self) -> None:
        """Begin: from ``CLOSE_S`` on, whatever is waited for comes to an end."""
        if self._is_on:
            signal.setitimer(_TIMER, CLOSE_S, CLOSE_AGAIN_S)

    def __exit__(self, *_: object) -> None:
        """End."""
        if self._is_on:
            signal.setitimer(_TIMER, 0)


INTERRUPTED: Final = Interrupted()
"""There is one timer in a process. Around whatever may make the kernel close something that
a client has sent: reading without room for it, and closing a connection."""


def _nothing(*_: object) -> None:
    """Do nothing: that a signal came is enough."""


def close_now(fds: Iterable[int]) -> list[int]:
    """Close files in memory, which takes no waiting; give the others."""
    others = []
    for fd in fds:
        try:
            fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        except OSError:
            others.append(fd)
        else:
            os.close(fd)
    return others


def close_apart(fds: Iterable[int]) -> threading.Thread | None:
    """Close descriptors in a thread, which may never come to its end.

    Ownership: the descriptors are the thread's. The process does not wait for it.

    Returns:
        The thread; ``None`` where there is none to be had and they were closed here.
    """
    kept = tuple(fds)
    thread = threading.Thread(target=_close_each, args=(kept,), daemon=True)
    try:
        thread.start()
    except RuntimeError:
        with INTERRUPTED:
            _close_each(kept)
        return None
    return thread


def _close_each(fds: Iterable[int]) -> None:
    for fd in fds:
        with suppress(OSError):  # a file system may say what it likes; it is closed
            os.close(fd)


def close_left(sock: socket.socket) -> None:
    """Close a socket to which nobody can send any more."""
    if _has_unread(sock):
        close_socket(sock)
    else:  # a timer for the kernel takes as long as all the rest
        sock.close()


def close_socket(sock: socket.socket | trio.socket.SocketType) -> None:
    """Close a socket, and with it descriptors that nobody has taken out of it."""
    with INTERRUPTED:
        sock.close()


def _has_unread(sock: socket.socket) -> bool:
    """Tell whether anything is unread: descriptors come with a byte at least."""
    return any(fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(_INT_BYTES)))
