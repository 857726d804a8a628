"""The worker's end of the socketpair: blocking, and safe to send on from any thread."""

import socket
import threading

from inferd.ipc import FromWorker, ToWorker
from inferd.limits import READ_BYTES
from inferd.pipe import MessageSplitter, decode_to_worker, encode


class Link:
    """Messages to and from the daemon."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._splitter = MessageSplitter()
        self._sending = threading.Lock()

    def send(self, message: FromWorker) -> None:
        """Send one message whole; waits while the daemon is behind."""
        data = encode(message)
        with self._sending:
            self._sock.sendall(data)

    def receive(self) -> ToWorker | None:
        """Wait for the next message; ``None`` when the daemon is gone."""
        while (payload := self._splitter.next_payload()) is None:
            try:
                data = self._sock.recv(READ_BYTES)
            except ConnectionResetError:  # it left without reading all we said
                data = b""
            if not data:
                return None
            self._splitter.feed(data)
        return decode_to_worker(payload)
