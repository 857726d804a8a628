"""Message transport over a worker's socket."""

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NoReturn

import trio

from inferd.engine.channel.readiness import call_when_readable
from inferd.ipc.encoding import (
    MessageSplitter,
    decode_from_worker,
    encode,
    encode_in_parts,
)
from inferd.ipc.worker import Append, FromWorker, ToWorker
from inferd.limits.connections import READ_BYTES, WRITE_BYTES
from inferd.limits.engine import IPC_SEND_QUEUE_MESSAGES


class MessageReader:
    """Reader of a worker's messages, for one task at a time.

    Bounds:
        Buffers no more than ``MessageSplitter``.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._socket = stream.socket
        self._splitter = MessageSplitter()

    def next_message(self) -> FromWorker | None:
        """Take a message that has arrived completely.

        Raises:
            MalformedMessageError: the worker sent bytes that are no message.
        """
        payload = self._splitter.next_payload()
        return None if payload is None else decode_from_worker(payload)

    async def read(self) -> bool:
        """Wait for more bytes and read them; false once the worker has closed its end.

        Cancellation: loses nothing.
        """
        await trio.lowlevel.wait_readable(self._socket)
        return self._read_now()

    async def read_all(self, handle: Callable[[], None]) -> None:
        """Call a function after each read until the worker has closed its end.

        Args:
            handle: takes the messages that are complete. It does not wait, and runs in this
                task or in none.

        Raises:
            Exception: what ``handle`` raised.

        Cancellation: loses nothing.
        """

        def read() -> bool:
            if is_open := self._read_now():
                handle()
            return is_open

        await call_when_readable(self._socket.fileno(), read)

    def _read_now(self) -> bool:
        """Read what there is; false once the worker has closed its end."""
        try:
            data = os.read(self._socket.fileno(), READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._splitter.feed(data)
        return bool(data)


FD_RETRY_S: Final = 0.01
"""Seconds before descriptors are sent again when the kernel has too many in flight."""


class SendQueueFullError(Exception):
    """The send queue is so full that the worker cannot be reading."""


class _Unsent(NamedTuple):
    """The unsent rest of a message."""

    data: memoryview
    fds: tuple[int, ...]
    """Our own copies of descriptors that are sent with the first byte."""
    appended_to: int | None = None
    """The job whose audio length it reports, if it is an ``Append``."""


class MessageWriter:
    """Writer that sends without blocking; ``drain`` sends what did not fit.

    Once the worker has closed its end, messages are discarded: the reader finds out how the
    worker ended.

    Ownership: ``send`` duplicates descriptors, and the copies are closed when they are sent
    or ``close`` is called: the caller may close its own at any time.

    Bounds:
        Holds ``IPC_SEND_QUEUE_MESSAGES`` messages; of a job's ``Append`` messages only the
        last is kept, as it has the total: a client cannot fill the queue with samples. One
        prompt is prepared at a time, so the descriptors are those of a few jobs: the last,
        and those abandoned before it was sent.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._socket = stream.socket
        self._unsent: deque[_Unsent] = deque()
        self._has_unsent = trio.Event()
        self._is_closed = False

    def send(self, message: ToWorker, fds: Sequence[int] = ()) -> None:
        """Send a message, after those that are queued.

        Args:
            message: to send.
            fds: open descriptors that go with it.

        Raises:
            SendQueueFullError: too many messages are queued.
            OSError: a descriptor cannot be duplicated; nothing is sent.
        """
        if self._is_closed or self._replaced_queued_append(message):
            return
        if len(self._unsent) >= IPC_SEND_QUEUE_MESSAGES:
            raise SendQueueFullError
        ticket = message.ticket if isinstance(message, Append) else None
        head, *more = encode_in_parts(message)
        is_first = not self._unsent
        self._unsent.append(_Unsent(memoryview(head), _copies(fds), ticket))
        self._unsent += [_Unsent(memoryview(part), (), None) for part in more]
        if is_first:
            self._write_now()
        if self._unsent:
            self._has_unsent.set()

    async def drain(self) -> NoReturn:
        """Send queued messages whenever the socket is writable, until cancelled."""
        while True:
            await self._has_unsent.wait()
            await self.flush()
            self._has_unsent = trio.Event()

    async def flush(self) -> None:
        """Send all queued messages; one task at a time may."""
        while self._unsent:
            await trio.lowlevel.wait_writable(self._socket)
            if not self._write_now():
                await trio.sleep(FD_RETRY_S)

    def close(self) -> None:
        """Discard the queue and send nothing more: the worker is gone."""
        self._is_closed = True
        self._discard_all()

    def _replaced_queued_append(self, message: ToWorker) -> bool:
        """Replace a queued ``Append`` of the same job, unless it may be half sent."""
        if not isinstance(message, Append):
            return False
        for index in range(1, len(self._unsent)):  # the first may be half sent
            if self._unsent[index].appended_to == message.ticket:
                data = memoryview(encode(message))
                self._unsent[index] = _Unsent(data, (), message.ticket)
                return True
        return False

    def _discard_all(self) -> None:
        while self._unsent:
            _close(self._unsent.popleft().fds)

    def _write_now(self) -> bool:
        """Write what the socket takes, of ``WRITE_BYTES``.

        Returns:
            Whether to go on as soon as it is writable: false if descriptors have to wait.
        """
        if not self._unsent:
            return True
        data, fds, _ = self._unsent[0]
        try:
            n_written = self._send(data[:WRITE_BYTES], fds)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS:
                return False
            self._discard_all()
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
        ours = socket.socket(fileno=self._socket.fileno())  # trio's socket would wait
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
