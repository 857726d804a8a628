"""Who is at the other end of a Unix socket."""

import socket
import struct
from dataclasses import dataclass
from typing import Final

import trio

_UCRED = struct.Struct("3i")
_SO_PEERGROUPS: Final = 59  # of asm-generic/socket.h; Python has no name for it
_GID: Final = struct.Struct("I")
_GROUPS_BYTES: Final = 1024
"""As many as Python asks the kernel for at once: 256 groups."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A process, as the kernel saw it when it connected."""

    pid: int
    uid: int
    gid: int

    def __str__(self) -> str:
        return f"unix:{self.uid}:{self.pid}"


def peer_of(stream: trio.SocketStream) -> Peer:
    """Ask the kernel for the peer's credentials."""
    data = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return Peer(*_UCRED.unpack(data))


def groups_of(stream: trio.SocketStream) -> frozenset[int]:
    """Ask the kernel for the peer's supplementary groups.

    None are told of a process that has more than 256: it is in its main group alone then.
    """
    try:
        data = stream.socket.getsockopt(
            socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES
        )
    except OSError:  # ERANGE, or a kernel older than 4.13
        return frozenset()
    return frozenset(gid for [gid] in _GID.iter_unpack(data))
