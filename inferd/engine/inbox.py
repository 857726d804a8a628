"""Messages from a worker, as they come through its pipe."""

import os

import trio

from inferd.ipc import FromWorker
from inferd.limits import READ_BYTES
from inferd.pipe import MessageSplitter, decode_from_worker


class Inbox:
    """Reads what a worker says. One task at a time may.

    Bounds:
        Holds no more than ``MessageSplitter``.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._socket = stream.socket
        self._splitter = MessageSplitter()

    def next_message(self) -> FromWorker | None:
        """Take a message that is there whole.

        Raises:
            BrokenLinkError: the worker sent what is none.
        """
        payload = self._splitter.next_payload()
        return None if payload is None else decode_from_worker(payload)

    async def read(self) -> bool:
        """Wait for more and read it; false once the worker has closed its end.

        It is waited first: a worker writes a token at a time, so that none is there yet
        when the last one is read. Trio's streams try first; that is a system call more
        for each token, and a quarter of the daemon's time.

        Cancellation: loses nothing.
        """
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                data = os.read(self._socket.fileno(), READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                return False
            self._splitter.feed(data)
            return bool(data)
