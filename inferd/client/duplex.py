"""A blocking connection on which sending never keeps from reading.

A daemon that is sent sound stops reading while it has enough, and may wait then for us to
read: who only sends would wait for it for ever.
"""

import select
import socket
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from inferd.client.exchange import ConnectionLostError
from inferd.client.memory import rights
from inferd.limits import READ_BYTES

_ENDED = select.POLLIN | select.POLLHUP | select.POLLERR


class Duplex:
    """One end of a connection; lines are sent as far as there is room, the rest later.

    Args:
        sock: connected; it is closed by ``close``.
        timeout_s: seconds of silence before ``TimeoutError``.

    Ownership: one thread reads; any may send.
    """

    def __init__(self, sock: socket.socket, timeout_s: float | None) -> None:
        sock.settimeout(0)
        self._sock = sock
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._unsent: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._is_deaf = False
        """Whether the other side takes nothing more; its last words may still come."""

    @property
    def has_sent(self) -> bool:
        """Whether nothing is left to send."""
        return not self._unsent

    def close(self) -> None:
        """Close the connection; a thread that waits for it is told that it is lost."""
        with suppress(OSError):  # it has ended already
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def put(self, line: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a line, or as much of it as there is room for.

        Args:
            line: whole; another thread's comes before or after it.
            descriptors: passed with its first byte; open until that is sent.
        """
        with self._lock:
            self._unsent.append((memoryview(line), descriptors))
            self._send()

    def flush(self) -> None:
        """Send all that is left.

        Raises:
            TimeoutError: the other side does not read.
        """
        while not self.has_sent:
            self._wait(select.POLLOUT)
            with self._lock:
                self._send()

    def read(self, *, waits: bool = True) -> bytes | None:
        """Read what has come, and send what there is room for meanwhile.

        Args:
            waits: whether to wait until something has come, or all is sent.

        Returns:
            What was read; no bytes at the end; ``None`` where nothing has come.

        Raises:
            ConnectionLostError: the connection broke.
            TimeoutError: nothing happened for ``timeout_s`` seconds.
        """
        wanted = select.POLLIN if self.has_sent else select.POLLIN | select.POLLOUT
        happened = self._wait(wanted) if waits else self._poll(wanted, 0)
        if happened & select.POLLOUT:
            with self._lock:
                self._send()
        return self._receive() if happened & _ENDED else None

    def _receive(self) -> bytes | None:
        try:
            return self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:  # also: it was closed meanwhile
            raise ConnectionLostError(error.strerror or str(error)) from error

    def _wait(self, wanted: int) -> int:
        timeout_ms = None if self._timeout_s is None else 1000 * self._timeout_s
        happened = self._poll(wanted, timeout_ms)
        if not happened:
            raise TimeoutError(f"the daemon says nothing for {self._timeout_s:g} s")
        return happened

    def _poll(self, wanted: int, timeout_ms: float | None) -> int:
        if (number := self._sock.fileno()) < 0:
            raise ConnectionLostError("the connection is closed")
        poll = select.poll()
        poll.register(number, wanted)
        return sum(happened for _, happened in poll.poll(timeout_ms))

    def _send(self) -> None:
        """Send while there is room, with the lock held."""
        try:
            while self._unsent and not self._is_deaf:
                line, descriptors = self._unsent[0]
                n_sent = self._sock.sendmsg([line], rights(descriptors))
                self._unsent[0] = (line[n_sent:], ())
                if n_sent == len(line):
                    self._unsent.popleft()
        except BlockingIOError:
            return
        except OSError:  # it broke, or was closed meanwhile
            self._is_deaf = True
        if self._is_deaf:
            self._unsent.clear()
