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

        Cancellation: a message that has begun is sent to its end.
        """
        data = memoryview(encode(message))
        async with self._sending:
            with trio.CancelScope(shield=True):
                while data:
                    try:
                        data = data[self._sock.send(data) :]
                    except BlockingIOError:
                        await trio.lowlevel.wait_writable(self._sock)

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
