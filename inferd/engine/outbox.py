"""Messages to a worker, written at once as far as its pipe has room."""

import errno
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

import trio

from inferd.ipc import Append, ToWorker
from inferd.limits import IPC_OUTBOX_MESSAGES
from inferd.pipe import encode, encode_in_parts

IN_FLIGHT_PAUSE_S: Final = 0.01
"""Seconds before descriptors are sent again where the kernel has too many on their way."""


class OutboxFullError(Exception):
    """So much waits for the worker that it cannot be reading."""


class _Unsent(NamedTuple):
    """What is left of a message."""

    data: memoryview
    fds: tuple[int, ...]
    """Our own copies of descriptors that go with the first byte."""
    appended_to: int | None = None
    """The job of which it says how much sound there is, if that is what it says."""


class Outbox:
    """Sends without waiting; ``drain`` sends what did not fit.

    Once the worker has closed its end, what is sent is lost: who reads from it will find
    out how it ended.

    Ownership: descriptors are copied when they are posted, and the copies closed when
    they are sent or ``close`` is called: who posts them may close its own at any time.

    Bounds:
        Holds ``IPC_OUTBOX_MESSAGES`` messages; of what was appended to a job, the last
        alone waits, as it tells all: a client cannot fill it with samples. One prompt is
        prepared at a time, so the descriptors are those of a few jobs: the last, and those
        given up before it was sent.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._socket = stream.socket
        self._unsent: deque[_Unsent] = deque()
        self._news = trio.Event()
        self._is_closed = False

    def post(self, message: ToWorker, fds: Sequence[int] = ()) -> None:
        """Send a message, after those that wait.

        Args:
            message: with which descriptors go.
            fds: open ones.

        Raises:
            OutboxFullError: too many do.
            OSError: there is no descriptor to be had for a copy; nothing is sent.
        """
        if self._is_closed or self._has_taken_place(message):
            return
        if len(self._unsent) >= IPC_OUTBOX_MESSAGES:
            raise OutboxFullError
        ticket = message.ticket if isinstance(message, Append) else None
        head, *more = encode_in_parts(message)
        is_first = not self._unsent
        self._unsent.append(_Unsent(memoryview(head), _copies(fds), ticket))
        self._unsent += [_Unsent(memoryview(part), (), None) for part in more]
        if is_first:
            self._write_now()
        if self._unsent:
            self._news.set()

    async def drain(self) -> NoReturn:
        """Send what waits, whenever there is room, until cancelled."""
        while True:
            await self._news.wait()
            await self.flush()
            self._news = trio.Event()

    async def flush(self) -> None:
        """Send what waits; one task at a time may."""
        while self._unsent:
            await trio.lowlevel.wait_writable(self._socket)
            if not self._write_now():
                await trio.sleep(IN_FLIGHT_PAUSE_S)

    def close(self) -> None:
        """Send nothing any more: the worker is gone."""
        self._is_closed = True
        self._forget()

    def _has_taken_place(self, message: ToWorker) -> bool:
        """Put what tells how much sound there is in the place of one that waits whole."""
        if not isinstance(message, Append):
            return False
        for place in range(1, len(self._unsent)):  # the first may be half sent
            if self._unsent[place].appended_to == message.ticket:
                data = memoryview(encode(message))
                self._unsent[place] = _Unsent(data, (), message.ticket)
                return True
        return False

    def _forget(self) -> None:
        while self._unsent:
            _close(self._unsent.popleft().fds)

    def _write_now(self) -> bool:
        """Write what there is room for; false where descriptors have to wait a while."""
        if not self._unsent:
            return True
        data, fds, _ = self._unsent[0]
        try:
            n_written = self._send(data, fds)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS:
                return False
            self._forget()
            return True
        _close(fds)
        if n_written == len(data):
            self._unsent.popleft()
        else:
            self._unsent[0] = _Unsent(data[n_written:], ())
        return True

    def _send(self, data: memoryview, fds: Sequence[int]) -> int:
        if not fds:
            return os.write(self._socket.fileno(), data)
        ours = socket.socket(fileno=self._socket.fileno())  # trio's would wait
        try:
            return socket.send_fds(ours, [data], list(fds))
        finally:
            ours.detach()


def _copies(fds: Sequence[int]) -> tuple[int, ...]:
    copies: list[int] = []
    try:
        for fd in fds:
            copies.append(os.dup(fd))  # noqa: PERF401  # to be closed if a later one fails
    except OSError:
        _close(copies)
        raise
    return tuple(copies)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
