"""Split a byte stream into frames: one JSON object per line, on every socket."""

from inferd.errors import FrameTooLargeError
from inferd.limits.connections import READ_AHEAD_BYTES
from inferd.limits.protocol import MAX_FRAME_BYTES


class LineSplitter:
    """Buffer that splits a byte stream into frames.

    It remembers how far it has searched, so bytes that arrive one by one cost linear time.

    Bounds:
        Memory: ``max_frame_bytes`` plus the bytes of one ``feed``, if the caller takes
        frames until ``None`` before it feeds again. At most ``READ_AHEAD_BYTES`` of frames
        already taken are held until then.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._start = 0
        self._searched = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes that were fed and not yet returned in a frame."""
        return len(self._buffer) - self._start

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Append received bytes."""
        self._discard_taken()
        self._buffer += data

    def _discard_taken(self) -> None:
        if self._start:
            del self._buffer[: self._start]
            self._searched -= self._start
            self._start = 0

    def next_frame(self) -> bytes | None:
        """Return the next frame without its newline, or ``None`` if it is incomplete.

        Raises:
            FrameTooLargeError: the line exceeds the limit, whether or not it has ended.
        """
        end = self._buffer.find(b"\n", self._searched)
        self._refuse_over_cap((len(self._buffer) if end < 0 else end) - self._start)
        if end < 0:
            self._searched = len(self._buffer)
            return None
        with memoryview(self._buffer) as view:
            frame = bytes(view[self._start : end])
        self._start = self._searched = end + 1
        if self._start > READ_AHEAD_BYTES:
            self._discard_taken()  # now, as the next read may be far off
        return frame

    def last_frame(self) -> bytes | None:
        """Return the bytes after the last newline, once the peer has closed its side.

        A last line without a newline is a frame; without any bytes, return ``None``.

        Raises:
            FrameTooLargeError: the line exceeds the limit.
        """
        frame = bytes(self._buffer[self._start :])
        self._buffer.clear()
        self._start = self._searched = 0
        self._refuse_over_cap(len(frame))
        return frame or None

    def _refuse_over_cap(self, n_bytes: int) -> None:
        if n_bytes > self._max_frame_bytes:
            raise FrameTooLargeError(f"frame exceeds {self._max_frame_bytes} byte cap")
