"""A blocking connection whose sends never prevent reads.

A daemon that gets appended audio stops reading while it has enough, and may then block
until its own frames are read: a client that only sends would deadlock.
"""

import select
import socket
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from inferd.client.exchange import ConnectionLostError
from inferd.client.memfd import scm_rights
from inferd.limits.connections import READ_BYTES

_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class BufferedSocket:
    """A connected socket with an unbounded send buffer, flushed while reading.

    Args:
        sock: connected; ``close`` closes it.
        timeout_s: seconds without data before ``TimeoutError``.

    Ownership: one thread reads; any may send.
    """

    def __init__(self, sock: socket.socket, timeout_s: float | None) -> None:
        sock.settimeout(0)
        self._sock = sock
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._unsent: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._is_broken = False
        """Whether sending failed; the daemon's last frames can still be read."""

    @property
    def is_flushed(self) -> bool:
        """Whether everything has been sent."""
        return not self._unsent

    @property
    def has_ended(self) -> bool:
        """Between requests: whether an end has come, or a frame that nobody asked for."""
        return self._sock.fileno() < 0 or bool(self._poll(_READABLE, 0))

    def is_unread(self, error: ConnectionLostError) -> bool:
        """Tell whether the connection ended before the daemon had read all that was sent.

        A Unix socket is reset where the other end is closed with unread bytes in it.
        """
        return self._is_broken or isinstance(error.__cause__, ConnectionResetError)

    def interrupt(self) -> None:
        """End the connection, from any thread: who waits in it reads its end."""
        with suppress(OSError):  # the connection has ended already
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; a thread that waits in it gets ``ConnectionLostError``."""
        self.interrupt()
        self._sock.close()

    def send_line(self, line: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send as much of a line as the kernel accepts, and buffer the rest.

        Args:
            line: one or more complete lines; lines of other threads do not interleave.
            descriptors: passed with the first byte; keep them open until it is sent.
        """
        with self._lock:
            self._unsent.append((memoryview(line), descriptors))
            self._send()

    def flush(self) -> None:
        """Send everything that is buffered.

        Raises:
            TimeoutError: the daemon read nothing for ``timeout_s`` seconds.
        """
        while not self.is_flushed:
            self._wait(select.POLLOUT)
            with self._lock:
                self._send()

    def read(self, *, waits: bool = True) -> bytes | None:
        """Receive bytes, and send buffered ones meanwhile.

        Args:
            waits: whether to wait until bytes have come or could be sent.

        Returns:
            The bytes; empty at the end of the connection; ``None`` if none have come.

        Raises:
            ConnectionLostError: the connection broke.
            TimeoutError: neither was possible for ``timeout_s`` seconds.
        """
        events = select.POLLIN if self.is_flushed else select.POLLIN | select.POLLOUT
        ready = self._wait(events) if waits else self._poll(events, 0)
        if ready & select.POLLOUT:
            with self._lock:
                self._send()
        return self._receive() if ready & _READABLE else None

    def _receive(self) -> bytes | None:
        try:
            return self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:  # broken, or closed by another thread
            raise ConnectionLostError(error.strerror or str(error)) from error

    def _wait(self, events: int) -> int:
        timeout_ms = None if self._timeout_s is None else 1000 * self._timeout_s
        ready = self._poll(events, timeout_ms)
        if not ready:
            raise TimeoutError(f"no data from the daemon for {self._timeout_s:g} s")
        return ready

    def _poll(self, events: int, timeout_ms: float | None) -> int:
        if (number := self._sock.fileno()) < 0:
            raise ConnectionLostError("the connection is closed")
        poll = select.poll()
        poll.register(number, events)
        return sum(ready for _, ready in poll.poll(timeout_ms))

    def _send(self) -> None:
        """Send while the kernel accepts bytes; the caller holds the lock."""
        try:
            while self._unsent and not self._is_broken:
                line, descriptors = self._unsent[0]
                n_sent = self._sock.sendmsg([line], scm_rights(descriptors))
                self._unsent[0] = (line[n_sent:], ())
                if n_sent == len(line):
                    self._unsent.popleft()
        except BlockingIOError:
            return
        except OSError:  # broken, or closed by another thread
            self._is_broken = True
        if self._is_broken:
            self._unsent.clear()
