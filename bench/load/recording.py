"""Bytes as they came: when, and up to where."""

from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple


class Recording:
    """All that one connection brought."""

    def __init__(self) -> None:
        self.sent_at = 0.0
        self.data = bytearray()
        self._moments: list[float] = []
        self._ends: list[int] = []

    def add(self, data: bytes, moment: float) -> None:
        """Keep what a read gave."""
        self.data += data
        self._moments.append(moment)
        self._ends.append(len(self.data))

    def moment_of(self, end: int) -> float:
        """Tell when the first ``end`` bytes were there."""
        return self._moments[bisect_left(self._ends, end)]


class Line(NamedTuple):
    """A line without its newline, and where it ends."""

    text: bytes
    end: int


def lines(data: bytes) -> list[Line]:
    """Cut at newlines; what follows the last is no line."""
    *whole, _ = data.split(b"\n")
    ends = accumulate(len(line) + 1 for line in whole)
    return [Line(line, end) for line, end in zip(whole, ends, strict=True)]
