"""Incremental UTF-8 decoding."""

import codecs


class TextDecoder:
    """Incremental UTF-8 decoder; characters may be split over pieces.

    Invalid bytes become U+FFFD. Any split of the same bytes gives the same text.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: bytes) -> str:
        """Decode a piece; return the characters that are complete, possibly none."""
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """End the input; return U+FFFD for an incomplete character."""
        return self._decoder.decode(b"", final=True)
