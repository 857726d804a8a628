"""A sink's writer that fails or waits when it is told to."""

import errno
import threading
from collections.abc import Sequence


class ScriptedWriter:
    """Keeps what it is given; see ``inferd.service.log_writer.LogLineWriter``."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        """What was written by each call."""
        self.errno: int | None = None
        """While it is set, writing fails with it."""
        self.fails_at: set[int] = set()
        """Numbers of the calls that fail as well, the first is 0."""
        self.most_lines = 2**31
        """Lines that one call writes at most."""
        self.refused = b""
        """A line that is never written."""
        self.n_calls = 0
        self.has_begun = threading.Event()
        """Whether writing was asked for."""
        self.may_write = threading.Event()
        """While it is clear, writing waits."""
        self.may_write.set()
        self.is_closed = False

    def __str__(self) -> str:
        return "scripted"

    @property
    def lines(self) -> list[bytes]:
        """All that was written."""
        return [line for batch in self.batches for line in batch]

    def write(self, lines: Sequence[bytes]) -> int:
        """Keep lines up to the one that is refused, or fail."""
        self.has_begun.set()
        self.may_write.wait()
        number, self.n_calls = self.n_calls, self.n_calls + 1
        if self.errno is not None:
            raise OSError(self.errno, errno.errorcode[self.errno])
        if number in self.fails_at or lines[0] == self.refused:
            raise OSError(errno.EIO, f"call {number}")
        taken = list(lines[: self.most_lines])
        if self.refused in taken:
            taken = taken[: taken.index(self.refused)]
        self.batches.append(taken)
        return len(taken)

    def close(self) -> None:
        """Note that it was closed."""
        self.is_closed = True
