"""Split bytes into lines: small ones as a whole, large ones in parts."""

from typing import NamedTuple

from inferd.errors import FrameTooLargeError
from inferd.limits.connections import READ_BYTES
from inferd.limits.protocol import MAX_FRAME_BYTES
from inferd.wire.framing import LineSplitter


class LargeLine(NamedTuple):
    """A line to be decoded by another process."""

    parts: list[bytearray]
    n_bytes: int


class LineBuffer:
    """Splits a stream of bytes into lines without ever copying a large line as a whole.

    Args:
        offload_line_bytes: the length from which on a line is large.

    Bounds:
        As a ``LineSplitter``; parts have up to ``READ_BYTES``, however small the reads.
    """

    def __init__(self, offload_line_bytes: int) -> None:
        self._offload_line_bytes = offload_line_bytes
        self._small = LineSplitter()
        self._parts: list[bytearray] = []
        self._n_bytes = 0
        self._is_whole = False

    @property
    def pending_bytes(self) -> int:
        """Bytes fed that are not part of a taken line."""
        return self._small.pending_bytes + self._n_bytes

    def feed(self, data: bytes | bytearray) -> None:
        """Add bytes; the caller has taken all complete lines."""
        if self._parts and not self._is_whole:
            line, newline, data = data.partition(b"\n")
            self._is_whole = bool(newline)
            self._add(line)
        if data:
            self._small.feed(data)

    def next_line(self) -> bytes | LargeLine | None:
        """Take the next line, without its newline; ``None`` if it is incomplete.

        Raises:
            FrameTooLargeError: the line exceeds the cap, whether or not it is complete.
        """
        if self._n_bytes > MAX_FRAME_BYTES:
            raise FrameTooLargeError(f"frame exceeds {MAX_FRAME_BYTES} byte cap")
        if self._parts:
            return self._take() if self._is_whole else None
        line = self._small.next_frame()
        if line is None:
            if self._small.pending_bytes >= self._offload_line_bytes:
                self._add(self._small.last_frame() or b"")
            return None
        return self._small_or_large(line)

    def last_line(self) -> bytes | LargeLine | None:
        """Take the bytes after the last newline; raises as ``next_line``."""
        if self._parts:
            return self._take()
        line = self._small.last_frame()
        return None if line is None else self._small_or_large(line)

    def _small_or_large(self, line: bytes) -> bytes | LargeLine:
        if len(line) < self._offload_line_bytes:
            return line
        return LargeLine([bytearray(line)], len(line))

    def _add(self, data: bytes | bytearray) -> None:
        self._n_bytes += len(data)
        if self._parts and len(self._parts[-1]) + len(data) <= READ_BYTES:
            self._parts[-1] += data
        else:
            self._parts.append(bytearray(data))

    def _take(self) -> LargeLine:
        line = LargeLine(self._parts, self._n_bytes)
        self._parts, self._n_bytes, self._is_whole = [], 0, False
        return line
