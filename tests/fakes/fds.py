"""Descriptors that clients hand over."""

import array
import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import trio

SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def memfd(content: bytes = b"", *, is_sealed: bool = True) -> int:
    """Make a file in memory, which the caller closes."""
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, content)
    if is_sealed:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


@contextmanager
def memfds(*contents: bytes) -> Iterator[list[int]]:
    """Make sealed files in memory, and close them on leaving."""
    fds = [memfd(content) for content in contents]
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def content_of(fd: int) -> bytes:
    """Read all that is in a file."""
    return os.pread(fd, os.fstat(fd).st_size, 0)


def n_open() -> int:
    """Count the open descriptors of this process."""
    return len([*Path("/proc/self/fd").iterdir()]) - 1  # but the one that lists


def is_open(fd: int) -> bool:
    """Tell whether there is such a descriptor."""
    return Path(f"/proc/self/fd/{fd}").exists()


async def send_with(stream: trio.SocketStream, data: bytes, fds: Sequence[int]) -> None:
    """Send bytes with descriptors."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
    n_sent = await stream.socket.sendmsg([data], [rights])
    await stream.send_all(data[n_sent:])
