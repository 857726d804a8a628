"""The worker's end of the socketpair: blocking; any thread may send."""

import os
import socket
import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from inferd.backend.job import media_of
from inferd.ipc.encoding import (
    MalformedMessageError,
    MessageSplitter,
    decode_to_worker,
    encode,
)
from inferd.ipc.worker import FromWorker, Prepare, ReceivedByWorker
from inferd.limits.connections import READ_BYTES
from inferd.limits.protocol import MAX_JOB_MEDIA
from inferd.scm_rights import ReceivedFds, receive_fds


class ReceivedMessage(NamedTuple):
    """A message, with descriptors that are now the receiver's to close."""

    message: ReceivedByWorker
    fds: tuple[int, ...] = ()
    """Of the media of the job to prepare, in their order."""


class MessageQueue:
    """The messages in the bytes that were received, with their descriptors; does no I/O."""

    def __init__(self) -> None:
        self._splitter = MessageSplitter()
        self._fds: deque[int] = deque()  # of messages that are incomplete

    def put(self, received: ReceivedFds) -> None:
        """Add bytes and descriptors.

        Raises:
            MalformedMessageError: there are too many descriptors.
        """
        self._fds.extend(received.fds)
        if received.is_cut:
            raise MalformedMessageError("too many descriptors in one message")
        self._splitter.feed(received.data)

    def next_message(self) -> ReceivedMessage | None:
        """Take the next message; ``None`` if more bytes are needed.

        Raises:
            MalformedMessageError: the bytes are no message, or descriptors are missing or
                left over.
        """
        payload = self._splitter.next_payload()
        if payload is None:
            return None
        message = decode_to_worker(payload)
        return ReceivedMessage(message, self._fds_of(message))

    def _fds_of(self, message: ReceivedByWorker) -> tuple[int, ...]:
        """Take a message's descriptors; those of the next may have arrived, too."""
        n_fds = len(media_of(message.job)) if isinstance(message, Prepare) else 0
        if n_fds > len(self._fds):
            raise MalformedMessageError(
                f"{len(self._fds)} descriptors for {n_fds} media"
            )
        fds = tuple(self._fds.popleft() for _ in range(n_fds))
        if self._fds and self._splitter.is_empty:
            raise MalformedMessageError("descriptors that belong to no job")
        return fds


class WorkerChannel:
    """The message channel to the daemon.

    Args:
        sock: blocks.
        queue: gets what is received.
    """

    def __init__(self, sock: socket.socket, queue: MessageQueue | None = None) -> None:
        self._sock = sock
        self._queue = MessageQueue() if queue is None else queue
        self._sending = threading.Lock()

    def send(self, message: FromWorker) -> None:
        """Send one message completely; blocks while the daemon does not read."""
        data = encode(message)
        with self._sending:
            self._sock.sendall(data)

    def receive(self) -> ReceivedMessage | None:
        """Wait for the next message; ``None`` when the daemon has closed its end.

        Raises:
            MalformedMessageError: the bytes are no message, or descriptors are missing or
                left over.
        """
        while (message := self._queue.next_message()) is None:
            try:
                received = receive_fds(self._sock, READ_BYTES, MAX_JOB_MEDIA)
            except ConnectionResetError:  # the daemon left messages unread
                return None
            if not received.data:
                return None
            self._queue.put(received)
        return message


def close_fds(fds: Iterable[int]) -> None:
    """Close descriptors."""
    for fd in fds:
        os.close(fd)
