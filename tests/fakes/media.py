"""Files in memory, as media come in them."""

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from inferd.job import GenerateJob, Media, Sampling, TranscribeJob, Turn

SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def memfd(data: bytes = b"", *, seals: int = SEALS) -> int:
    """Make a file with these bytes; the caller closes it."""
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


def n_open() -> int:
    """Count this process's descriptors."""
    return len([*Path("/proc/self/fd").iterdir()])


def contents(fds: list[int] | tuple[int, ...]) -> list[bytes]:
    """Read files from their beginning, and close them."""
    read = [os.pread(fd, 1000, 0) for fd in fds]
    for fd in fds:
        os.close(fd)
    return read


def job_with(n_media: int) -> GenerateJob:
    """Make a job with so many images of one pixel."""
    return GenerateJob(
        turns=[Turn("user", "hi")],
        media=tuple(
            Media(kind="image", id=str(n), n_bytes=3, width=1, height=1)
            for n in range(n_media)
        ),
        max_tokens=1000,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
    )


def speech(n_bytes: int = 0, *, is_open: bool = True) -> TranscribeJob:
    """Make a job with sound."""
    audio = Media(
        kind="audio", id="a", n_bytes=n_bytes, sample_rate=16_000, is_open=is_open
    )
    return TranscribeJob(audio=audio)


class Odd(NamedTuple):
    """A descriptor that is no medium, and what is said of it."""

    make: Callable[[], int]
    fault: str


def _pipe() -> int:
    read, write = os.pipe()
    os.close(write)
    return read


def _for_writing() -> int:
    fd = memfd(bytes(12), seals=0)
    writing = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    os.close(fd)
    return writing


ODD: Final = {
    "pipe": Odd(_pipe, "no memfd"),
    "socket": Odd(lambda: socket.socket(socket.AF_UNIX).detach(), "no memfd"),
    "path": Odd(lambda: os.open("/", os.O_PATH), "no memfd"),
    "file": Odd(lambda: os.open(__file__, os.O_RDONLY), "no memfd"),
    "device": Odd(lambda: os.open("/dev/zero", os.O_RDONLY), "no memfd"),
    "directory": Odd(lambda: os.open("/", os.O_RDONLY), "no memfd"),
    "write-only": Odd(_for_writing, "cannot be read"),
    "unsealed": Odd(lambda: memfd(bytes(12), seals=0), "is not sealed"),
    "half a sample": Odd(lambda: memfd(bytes(13)), "has 13 bytes"),
    "petabyte": Odd(lambda: hole(2**50), f"has .*{2**50} bytes|over"),
}
"""What clients may pass in the place of a picture of four pixels, or of sound."""
