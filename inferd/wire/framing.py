"""Bytes to frames: one JSON object a line, the same on every socket."""

from inferd.errors import FrameTooLargeError
from inferd.limits import MAX_FRAME_BYTES, READ_AHEAD_BYTES


class LineSplitter:
    """Cuts a stream of bytes into frames, holding one frame and one read at most.

    The position already searched is kept, so dribbled bytes cost linear time.

    Bounds:
        Memory: ``max_frame_bytes`` plus what one ``feed`` brings, for a caller that
        takes frames until ``None`` before it feeds again. Of frames that were taken,
        ``READ_AHEAD_BYTES`` at most are held until then.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._start = 0
        self._searched = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes fed that no frame has taken yet."""
        return len(self._buffer) - self._start

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add what was read."""
        self._forget_taken()
        self._buffer += data

    def _forget_taken(self) -> None:
        if self._start:
            del self._buffer[: self._start]
            self._searched -= self._start
            self._start = 0

    def next_frame(self) -> bytes | None:
        """Take the next frame, without its newline, or ``None`` if more is needed.

        Raises:
            FrameTooLargeError: the line passed the cap, whether or not it has ended.
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
            self._forget_taken()  # now: who knows when there is more to read
        return frame

    def last_frame(self) -> bytes | None:
        """Take what stands after the last newline once the peer has ended its side.

        A last line without a newline is a frame; no bytes at all are a clean end.

        Raises:
            FrameTooLargeError: the line passed the cap.
        """
        frame = bytes(self._buffer[self._start :])
        self._buffer.clear()
        self._start = self._searched = 0
        self._refuse_over_cap(len(frame))
        return frame or None

    def _refuse_over_cap(self, n_bytes: int) -> None:
        if n_bytes > self._max_frame_bytes:
            raise FrameTooLargeError(f"frame exceeds {self._max_frame_bytes} byte cap")
