"""Descriptors that clients hand over."""

import array
import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import trio

SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def memfd(data: bytes = b"", *, seals: int = SEALS) -> int:
    """Make a memfd with these bytes; the caller closes it."""
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def hole(n_bytes: int) -> int:
    """Make a file that takes no memory, however long it is; the caller closes it."""
    fd = memfd(seals=0)
    os.ftruncate(fd, n_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


def memfds(*contents: bytes) -> AbstractContextManager[list[int]]:
    """Make files with these bytes, and close them on leaving."""
    return closing(*map(memfd, contents))


@contextmanager
def closing(*fds: int) -> Iterator[list[int]]:
    """Close these on leaving."""
    try:
        yield list(fds)
    finally:
        for fd in fds:
            os.close(fd)


def content_of(fd: int) -> bytes:
    """Read all that is in a file."""
    return os.pread(fd, os.fstat(fd).st_size, 0)


def contents(fds: list[int] | tuple[int, ...]) -> list[bytes]:
    """Read files from their beginning, and close them."""
    read = [os.pread(fd, 1000, 0) for fd in fds]
    for fd in fds:
        os.close(fd)
    return read


def n_open() -> int:
    """Count this process's descriptors."""
    return len([*Path("/proc/self/fd").iterdir()])


def is_open(fd: int) -> bool:
    """Tell whether a descriptor is open."""
    return Path(f"/proc/self/fd/{fd}").exists()


async def send_with(stream: trio.SocketStream, data: bytes, fds: Sequence[int]) -> None:
    """Send bytes with descriptors."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
    n_sent = await stream.socket.sendmsg([data], [rights])
    await stream.send_all(data[n_sent:])


@contextmanager
def lingering(*, linger_s: int = 100_000) -> Iterator[tuple[int, socket.socket]]:
    """Make a TCP socket that blocks in ``close``, and its peer that does not read.

    Yields the descriptor, which the caller closes, and the peer: ``close`` returns once the
    peer is closed.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with theirs:
        ours.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                ours.send(bytes(64 * 1024))
        on = struct.pack("ii", 1, linger_s)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, on)
        yield ours.detach(), theirs
