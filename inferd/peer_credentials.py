"""Whose process is at the other end of a Unix socket, by the kernel's word."""

import socket
import struct
from pathlib import Path
from typing import Final, NamedTuple, Protocol

_UCRED: Final = struct.Struct("iII")
_OVERFLOW_UID: Final = Path("/proc/sys/kernel/overflowuid")
_USUAL_OVERFLOW_UID: Final = 65534


class ConnectedSocket(Protocol):
    """A connected socket of the standard library or of trio."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes:
        """Read a socket option."""


class PeerCredentials(NamedTuple):
    """A process, as it was when it connected or began to listen."""

    pid: int
    uid: int
    gid: int


def credentials_of(sock: ConnectedSocket) -> PeerCredentials:
    """Return the credentials of the other end of a connected Unix socket.

    Raises:
        OSError: it is not connected.
    """
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return PeerCredentials(*_UCRED.unpack(data))


def overflow_uid() -> int:
    """Return the uid that the kernel reports for users of other user namespaces."""
    try:
        return int(_OVERFLOW_UID.read_text())
    except (OSError, ValueError):  # no /proc
        return _USUAL_OVERFLOW_UID
