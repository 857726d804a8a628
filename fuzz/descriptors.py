"""Descriptors of all kinds, to go along with lines."""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tests.fakes.fds import memfd


def _pipe() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


KINDS: Final[dict[str, Callable[[], int]]] = {
    "sealed": lambda: memfd(b"\0" * 12),
    "unsealed": lambda: memfd(b"\0" * 12, seals=0),
    "empty": memfd,
    "pipe": _pipe,
    "socket": lambda: socket.socket(socket.AF_UNIX).detach(),
    "null": lambda: os.open(os.devnull, os.O_RDWR),
    "zero": lambda: os.open("/dev/zero", os.O_RDONLY),
    "directory": lambda: os.open("/", os.O_RDONLY),
    "path": lambda: os.open("/", os.O_PATH),
}
COUNTS: Final = (1, 1, 1, 2, 5, 31, 32, 33, 100, 253)
"""How many go with one ``sendmsg``; the kernel takes no more."""


@contextmanager
def opened(kinds: Sequence[str]) -> Iterator[list[int]]:
    """Open one of each; close them on leaving."""
    fds: list[int] = []
    try:
        fds += (KINDS[kind]() for kind in kinds)
        yield fds
    finally:
        for fd in fds:
            os.close(fd)
