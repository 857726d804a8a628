"""The worker's end of the socketpair: blocking, and safe to send on from any thread."""

import array
import os
import socket
import threading
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from inferd.ipc import FromWorker, Prepare, ToWorker
from inferd.job import media_of
from inferd.limits import MAX_JOB_MEDIA, READ_BYTES
from inferd.pipe import BrokenLinkError, MessageSplitter, decode_to_worker, encode

_FD_BYTES: Final = array.array("i").itemsize
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(MAX_JOB_MEDIA * _FD_BYTES)


class Received(NamedTuple):
    """A message, and the descriptors that are now the receiver's to close."""

    message: ToWorker
    fds: tuple[int, ...] = ()
    """Of the media of the job that is to be prepared, in their order."""


class Link:
    """Messages to and from the daemon."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._splitter = MessageSplitter()
        self._fds: deque[int] = deque()  # of messages that are not whole yet
        self._sending = threading.Lock()

    def send(self, message: FromWorker) -> None:
        """Send one message whole; waits while the daemon is behind."""
        data = encode(message)
        with self._sending:
            self._sock.sendall(data)

    def receive(self) -> Received | None:
        """Wait for the next message; ``None`` when the daemon is gone.

        Raises:
            BrokenLinkError: what came is none, or has not the descriptors that go with it.
        """
        while (payload := self._splitter.next_payload()) is None:
            try:
                data = self._read()
            except ConnectionResetError:  # it left without reading all we said
                data = b""
            if not data:
                return None
            self._splitter.feed(data)
        message = decode_to_worker(payload)
        return Received(message, self._fds_of(message))

    def _read(self) -> bytes:
        data, ancillary, flags, _ = self._sock.recvmsg(
            READ_BYTES, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
        )
        self._fds.extend(_received(ancillary))
        if flags & socket.MSG_CTRUNC:
            raise BrokenLinkError("there is no room for the descriptors of a job")
        return data

    def _fds_of(self, message: ToWorker) -> tuple[int, ...]:
        """Take what came with a message; those of the next may be here, too."""
        n_fds = len(media_of(message.job)) if isinstance(message, Prepare) else 0
        if n_fds > len(self._fds):
            raise BrokenLinkError(f"{len(self._fds)} descriptors for {n_fds} media")
        fds = tuple(self._fds.popleft() for _ in range(n_fds))
        if self._fds and self._splitter.is_empty:
            raise BrokenLinkError("descriptors that belong to no job")
        return fds


def _received(ancillary: Iterable[tuple[int, int, bytes]]) -> Iterable[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) // _FD_BYTES * _FD_BYTES])
    return fds


def close_all(fds: Iterable[int]) -> None:
    """Close descriptors."""
    for fd in fds:
        os.close(fd)
