"""Reading a connection on which descriptors may come along, and whose they are."""

import array
import socket
from collections.abc import Iterable
from typing import Final

import trio

from inferd.limits import MAX_ATTACHMENTS, READ_BYTES
from inferd.server.closing import INTERRUPTED
from inferd.server.custody import NOTHING, Custody, Parcel

_FLAGS: Final = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
_FD_BYTES: Final = array.array("i").itemsize


class Parcels:
    """Sorts descriptors by line: they belong to that of the last byte that they came with.

    The kernel gives those of one ``sendmsg`` with its first bytes, perhaps behind bytes
    that were sent before, and never reads beyond its end at once. So whoever sends them
    with bytes of one line alone can be sure of the line, however it is read.

    Bounds:
        ``MAX_ATTACHMENTS`` a line; a caller who takes all lines that are whole before it
        feeds again has those of one unfinished line here.
    """

    def __init__(self, custody: Custody, uid: int) -> None:
        self._custody = custody
        self._uid = uid
        self._n_ended = 0  # lines
        self._by_line: dict[int, Parcel] = {}

    @property
    def room(self) -> int:
        """Descriptors that may come along: of more the kernel closes the rest."""
        return min(MAX_ATTACHMENTS, self._custody.room(self._uid))

    @property
    def size(self) -> int:
        """Bytes of lines that all here count for."""
        return sum(each.size for each in self._by_line.values())

    def feed(
        self,
        data: bytes | bytearray,
        fds: tuple[int, ...] = (),
        *,
        is_cut: bool = False,
    ) -> None:
        """Note what was read.

        Args:
            data: not empty, where there are descriptors.
            fds: what came along; this has them from here on.
            is_cut: whether the kernel dropped others.
        """
        self._n_ended += data.count(b"\n")
        if fds or is_cut:
            line = self._n_ended - data.endswith(b"\n")
            if line not in self._by_line:
                self._by_line[line] = Parcel(self._custody, self._uid)
            self._by_line[line].add(fds, is_cut=is_cut)

    def count(self, number: int) -> int:
        """Count what came with a line, which stays here."""
        return len(self._by_line.get(number, NOTHING).fds)

    def of_line(self, number: int) -> Parcel:
        """Take what came with a line, the caller's from here on; lines count from 0."""
        return self._by_line.pop(number, NOTHING)

    def close(self) -> None:
        """Close what nobody has taken."""
        for parcel in self._by_line.values():
            parcel.close()
        self._by_line.clear()


def receive(stream: trio.SocketStream, parcels: Parcels) -> bytes:
    """Read some bytes that are there, and note what came along.

    Returns:
        The bytes; none stand for the end.

    Raises:
        BlockingIOError: there are none.
        OSError: the connection is gone.
    """
    ours = socket.socket(fileno=stream.socket.fileno())  # trio's would wait
    room = socket.CMSG_LEN(parcels.room * _FD_BYTES)
    try:
        with INTERRUPTED:
            data, aside, flags, _ = ours.recvmsg(READ_BYTES, room, _FLAGS)
    finally:
        ours.detach()
    if aside or flags & socket.MSG_CTRUNC:
        parcels.feed(data, _fds_in(aside), is_cut=bool(flags & socket.MSG_CTRUNC))
    else:
        parcels.feed(data)
    return data


def _fds_in(aside: Iterable[tuple[int, int, bytes]]) -> tuple[int, ...]:
    fds = array.array("i")
    for level, kind, content in aside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) // _FD_BYTES * _FD_BYTES])
    return tuple(fds)
