"""Receive bytes and passed descriptors, and assign the descriptors to lines."""

import socket

import trio

from inferd.limits.connections import READ_BYTES
from inferd.limits.protocol import MAX_ATTACHMENTS
from inferd.scm_rights import receive_fds
from inferd.server.fd_passing.close import SYSCALL_TIMER
from inferd.server.fd_passing.quota import NO_FDS, FdQuota, LineFds


class FdsByLine:
    """Assigns descriptors to the line of the last byte with which they were received.

    The kernel delivers the descriptors of one ``sendmsg`` with its first bytes, perhaps
    after bytes that were sent before, and a single read does not go beyond the last byte of that call.
    So a client that sends descriptors with bytes of one line alone has them assigned to
    this line, however it is read.

    Bounds:
        ``MAX_ATTACHMENTS`` a line; if the caller takes all complete lines before it feeds
        again, only one unfinished line has descriptors here.
    """

    def __init__(self, fd_quota: FdQuota, uid: int) -> None:
        self._fd_quota = fd_quota
        self._uid = uid
        self._n_ended = 0  # complete lines so far
        self._by_line: dict[int, LineFds] = {}

    @property
    def n_available(self) -> int:
        """How many descriptors to allow in a read; the kernel closes any others."""
        return min(MAX_ATTACHMENTS, self._fd_quota.n_available(self._uid))

    @property
    def cost_bytes(self) -> int:
        """Bytes charged for all descriptors here against the read-ahead limit."""
        return sum(each.cost_bytes for each in self._by_line.values())

    def feed(
        self,
        data: bytes | bytearray,
        fds: tuple[int, ...] = (),
        *,
        is_cut: bool = False,
    ) -> None:
        """Note received bytes and descriptors.

        Args:
            data: not empty if there are descriptors.
            fds: came with the bytes; owned by this from here on.
            is_cut: whether the kernel discarded others.
        """
        self._n_ended += data.count(b"\n")
        if fds or is_cut:
            line = self._n_ended - data.endswith(b"\n")
            if line not in self._by_line:
                self._by_line[line] = LineFds(self._fd_quota, self._uid)
            self._by_line[line].add(fds, is_cut=is_cut)

    def count(self, number: int) -> int:
        """Count the descriptors of a line; lines count from 0."""
        return len(self._by_line.get(number, NO_FDS).fds)

    def take_line(self, number: int) -> LineFds:
        """Take the descriptors of a line, the caller's from here on; lines count from 0."""
        return self._by_line.pop(number, NO_FDS)

    def close(self) -> None:
        """Close the descriptors that were not taken."""
        for line_fds in self._by_line.values():
            line_fds.close()
        self._by_line.clear()


def receive_with_fds(stream: trio.SocketStream, fds_by_line: FdsByLine) -> bytes:
    """Receive bytes and descriptors without blocking.

    Returns:
        The bytes; empty at EOF.

    Raises:
        BlockingIOError: there is nothing to be read.
        OSError: the connection is broken.
    """
    borrowed = socket.socket(fileno=stream.socket.fileno())  # trio's socket would wait
    try:
        with SYSCALL_TIMER:
            data, fds, is_cut = receive_fds(
                borrowed, READ_BYTES, fds_by_line.n_available, socket.MSG_DONTWAIT
            )
    finally:
        borrowed.detach()
    fds_by_line.feed(data, fds, is_cut=is_cut)
    return data
