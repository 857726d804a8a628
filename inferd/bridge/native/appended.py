"""Lines of sound behind a request, while it is answered."""

import binascii
from collections.abc import Iterator

import msgspec

from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.bridge.translation.question import AppendedSamples
from inferd.client.media.sound import SAMPLE_RATE_HZ
from inferd.errors import FrameTooLargeError
from inferd.limits.bridge import APPENDED_LINE_BYTES
from inferd.wire.codec import DECODE_FAILURES
from inferd.wire.framing import LineSplitter
from inferd.wire.speech import AppendLine

BYTES_PER_SAMPLE = 4
_LINE = msgspec.json.Decoder(AppendLine)


class AppendedLines:
    """Reads ``append`` lines, as the daemon's socket has them.

    Args:
        request_id: as the caller named the request.
        attachment_id: of the request's open attachment.

    Bounds:
        A line: ``APPENDED_LINE_BYTES``.
    """

    def __init__(self, request_id: str, attachment_id: str) -> None:
        self._ids = (request_id, attachment_id)
        self._lines = LineSplitter(APPENDED_LINE_BYTES)
        self.has_ended = False
        """Whether a line has said that no more follows."""

    def read(self, data: bytes) -> Iterator[AppendedSamples]:
        """Take bytes; yield what their whole lines append.

        Raises:
            BridgeError: a line is none of this request, too long, or behind the last one.
        """
        self._lines.feed(data)
        while (line := self._next_line()) is not None:
            if line.strip():
                yield self._samples(line)

    def _next_line(self) -> bytes | None:
        try:
            return self._lines.next_frame()
        except FrameTooLargeError as error:
            text = f"a line of sound has over {APPENDED_LINE_BYTES} bytes"
            raise BridgeError(Reason.TOO_LARGE, text) from error

    def seconds(self, samples: bytes) -> float:
        """Return how long a part of the recording is."""
        return len(samples) / BYTES_PER_SAMPLE / SAMPLE_RATE_HZ

    def _samples(self, text: bytes) -> AppendedSamples:
        if self.has_ended:
            raise invalid("append", "the sound has ended with the line before")
        try:
            line = _LINE.decode(text)
        except DECODE_FAILURES as error:
            raise invalid("append", f"no line that appends sound: {error}") from error
        if (line.id, line.attachment_id) != self._ids:
            raise invalid("append", "of another request or attachment")
        if line.fd is not None:
            raise invalid("append", "needs bytes: no descriptor comes over HTTP")
        try:
            samples = binascii.a2b_base64(line.bytes or "", strict_mode=True)
        except ValueError as error:
            raise invalid("bytes", f"not base64: {error}") from error
        self.has_ended = line.end
        return AppendedSamples(samples, line.end)
