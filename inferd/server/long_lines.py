"""Bytes to lines: short ones whole, long ones in the parts in which they came."""

from typing import NamedTuple

from inferd.errors import FrameTooLargeError
from inferd.limits import MAX_FRAME_BYTES, READ_BYTES
from inferd.wire.framing import LineSplitter


class LongLine(NamedTuple):
    """A line that another process reads."""

    parts: list[bytearray]
    n_bytes: int


class Lines:
    """Cuts a stream of bytes into lines; a long one is never copied as a whole.

    Args:
        apart_bytes: from so many on a line is long.

    Bounds:
        As a ``LineSplitter``; a part has up to ``READ_BYTES``, however it dribbled in.
    """

    def __init__(self, apart_bytes: int) -> None:
        self._apart_bytes = apart_bytes
        self._short = LineSplitter()
        self._parts: list[bytearray] = []
        self._n_bytes = 0
        self._is_whole = False

    @property
    def pending_bytes(self) -> int:
        """Bytes fed that no line has taken yet."""
        return self._short.pending_bytes + self._n_bytes

    def feed(self, data: bytes | bytearray) -> None:
        """Add what was read, by a caller that has taken all lines by now."""
        if self._parts and not self._is_whole:
            line, newline, data = data.partition(b"\n")
            self._is_whole = bool(newline)
            self._add(line)
        if data:
            self._short.feed(data)

    def next_line(self) -> bytes | LongLine | None:
        """Take the next line, without its newline, or ``None`` if more is needed.

        Raises:
            FrameTooLargeError: the line passed the cap, whether or not it has ended.
        """
        if self._n_bytes > MAX_FRAME_BYTES:
            raise FrameTooLargeError(f"frame exceeds {MAX_FRAME_BYTES} byte cap")
        if self._parts:
            return self._take() if self._is_whole else None
        line = self._short.next_frame()
        if line is None:
            if self._short.pending_bytes >= self._apart_bytes:
                self._add(self._short.last_frame() or b"")
            return None
        return self._sorted(line)

    def last_line(self) -> bytes | LongLine | None:
        """Take what stands after the last newline; raises as ``next_line``."""
        if self._parts:
            return self._take()
        line = self._short.last_frame()
        return None if line is None else self._sorted(line)

    def _sorted(self, line: bytes) -> bytes | LongLine:
        if len(line) < self._apart_bytes:
            return line
        return LongLine([bytearray(line)], len(line))

    def _add(self, data: bytes | bytearray) -> None:
        self._n_bytes += len(data)
        if self._parts and len(self._parts[-1]) + len(data) <= READ_BYTES:
            self._parts[-1] += data
        else:
            self._parts.append(bytearray(data))

    def _take(self) -> LongLine:
        line = LongLine(self._parts, self._n_bytes)
        self._parts, self._n_bytes, self._is_whole = [], 0, False
        return line
