"""Files in memory, as media come in them."""

import fcntl
import os
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

from inferd.backend.job import GenerateJob, Media, Sampling, TranscribeJob, Turn
from tests.fakes.fds import SEALS, hole, memfd


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
    "pipe": Odd(_pipe, "not a memfd"),
    "socket": Odd(lambda: socket.socket(socket.AF_UNIX).detach(), "not a memfd"),
    "path": Odd(lambda: os.open("/", os.O_PATH), "not a memfd"),
    "file": Odd(lambda: os.open(__file__, os.O_RDONLY), "not a memfd"),
    "device": Odd(lambda: os.open("/dev/zero", os.O_RDONLY), "not a memfd"),
    "directory": Odd(lambda: os.open("/", os.O_RDONLY), "not a memfd"),
    "write-only": Odd(_for_writing, "cannot be read"),
    "unsealed": Odd(lambda: memfd(bytes(12), seals=0), "is not sealed"),
    "half a sample": Odd(lambda: memfd(bytes(13)), "has 13 bytes"),
    "petabyte": Odd(lambda: hole(2**50), f"has .*{2**50} bytes|over"),
}
"""What clients may pass in the place of a picture of four pixels, or of sound."""
