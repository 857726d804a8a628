"""Who is at the other end of a Unix socket."""

import socket
import struct
from dataclasses import dataclass

import trio

_UCRED = struct.Struct("3i")


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
