"""Receive descriptors that another process passed over a Unix socket."""

import array
import socket
from typing import Final, NamedTuple

_FD_BYTES: Final = array.array("i").itemsize


class ReceivedFds(NamedTuple):
    """Bytes, and the descriptors that came with them."""

    data: bytes
    """Empty at EOF."""
    fds: tuple[int, ...]
    """Close-on-exec; the caller's to close."""
    is_cut: bool
    """Whether the kernel discarded others (``MSG_CTRUNC``)."""


def receive_fds(
    sock: socket.socket, n_bytes: int, n_fds: int, flags: int = 0
) -> ReceivedFds:
    """Receive bytes and descriptors with one system call.

    ``socket.recv_fds`` does not do: Python 3.11 ignores its flags.

    Args:
        sock: a Unix socket.
        n_bytes: at most.
        n_fds: at most; the kernel discards others.
        flags: of ``recvmsg``, besides ``MSG_CMSG_CLOEXEC``.

    Raises:
        OSError: as ``recvmsg``.
    """
    data, ancillary, received, _ = sock.recvmsg(
        n_bytes, socket.CMSG_LEN(n_fds * _FD_BYTES), flags | socket.MSG_CMSG_CLOEXEC
    )
    fds = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) // _FD_BYTES * _FD_BYTES])
    return ReceivedFds(data, tuple(fds), bool(received & socket.MSG_CTRUNC))
