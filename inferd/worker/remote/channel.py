"""The worker's end of the socketpair, on trio."""

import socket
from collections.abc import AsyncIterator

import trio

from inferd.ipc.encoding import encode
from inferd.ipc.worker import FromWorker
from inferd.limits.connections import READ_BYTES
from inferd.limits.protocol import MAX_JOB_MEDIA
from inferd.scm_rights import receive_fds
from inferd.worker.channel import MessageQueue, ReceivedMessage


class AsyncChannel:
    """The message channel to the daemon.

    Args:
        sock: does not block.
        queue: of what was received before.
    """

    def __init__(self, sock: socket.socket, queue: MessageQueue) -> None:
        self._sock = sock
        self._queue = queue
        self._sending = trio.Lock()

    async def send(self, message: FromWorker) -> None:
        """Send one message completely; waits while the daemon does not read.

        It is no checkpoint where the daemon reads, as it does as long as it is well: who sends
        the parts of an answer waits for each of them.

        Cancellation: a message that has begun is sent to its end.
        """
        data = memoryview(encode(message))
        if not self._sending.locked():
            data = self._send_now(data)
        if data:
            await self._send_rest(data)

    async def _send_rest(self, data: memoryview) -> None:
        async with self._sending:
            with trio.CancelScope(shield=True):
                while data:
                    await trio.lowlevel.wait_writable(self._sock)
                    data = self._send_now(data)

    def _send_now(self, data: memoryview) -> memoryview:
        """Send what the socket takes; return what is left."""
        try:
            return data[self._sock.send(data) :]
        except BlockingIOError:
            return data

    async def receive_all(self) -> AsyncIterator[ReceivedMessage]:
        """Yield messages until the daemon closes its end.

        Raises:
            MalformedMessageError: the bytes are no message, or descriptors are missing.
        """
        while True:
            while (message := self._queue.next_message()) is not None:
                yield message
            await trio.lowlevel.wait_readable(self._sock)
            try:
                received = receive_fds(self._sock, READ_BYTES, MAX_JOB_MEDIA)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                return
            if not received.data:
                return
            self._queue.put(received)
