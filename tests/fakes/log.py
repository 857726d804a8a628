"""The daemon's log as it is written, in place of what structlog was told."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from inferd.config.choices import LogLevel
from inferd.server.telemetry.log import writing_log


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """Open a pipe: the reading end, the writing end."""
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


def fill(writing: int) -> int:
    """Fill a pipe; give how many bytes it took."""
    os.set_blocking(writing, False)
    n_bytes = 0
    try:
        while True:
            n_bytes += os.write(writing, b"." * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    return n_bytes


def lines_of(reading: int) -> list[str]:
    """Read the lines that are there."""
    os.set_blocking(reading, False)
    try:
        return os.read(reading, 1_000_000).decode().splitlines()
    except BlockingIOError:
        return []


@contextmanager
def logged(patch: pytest.MonkeyPatch, level: LogLevel = "info") -> Iterator[list[str]]:
    """Log to a pipe in place of stderr; afterwards the list has the lines.

    No more than a pipe holds is read.
    """
    lines: list[str] = []
    with pipe() as (reading, writing), os.fdopen(os.dup(writing), "w") as file:
        with patch.context() as inner:
            inner.setattr("sys.stderr", file)
            with writing_log(level):
                yield lines
        lines += lines_of(reading)
