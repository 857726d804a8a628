"""Messages to a worker, written at once as far as its pipe has room."""

import os
from collections import deque
from typing import NoReturn

import trio

from inferd.ipc import ToWorker
from inferd.limits import IPC_OUTBOX_MESSAGES
from inferd.pipe import encode


class OutboxFullError(Exception):
    """So much waits for the worker that it cannot be reading."""


class Outbox:
    """Sends without waiting; ``drain`` sends what did not fit.

    Once the worker has closed its end, what is sent is lost: who reads from it will find
    out how it ended.

    Bounds:
        Holds ``IPC_OUTBOX_MESSAGES`` messages.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._socket = stream.socket
        self._unsent: deque[memoryview] = deque()
        self._news = trio.Event()

    def post(self, message: ToWorker) -> None:
        """Send a message, after those that wait.

        Raises:
            OutboxFullError: too many do.
        """
        if len(self._unsent) >= IPC_OUTBOX_MESSAGES:
            raise OutboxFullError
        self._unsent.append(memoryview(encode(message)))
        if len(self._unsent) == 1:
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
            self._write_now()

    def _write_now(self) -> None:
        try:
            n_written = os.write(self._socket.fileno(), self._unsent[0])
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()
            return
        if n_written == len(self._unsent[0]):
            self._unsent.popleft()
        else:
            self._unsent[0] = self._unsent[0][n_written:]
