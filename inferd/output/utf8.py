"""Bytes to text when characters are split over pieces."""

import codecs


class TextDecoder:
    """Gives text as soon as its characters are whole.

    Bytes that can never become a character turn into U+FFFD, as in one go: any split of
    the same bytes gives the same text.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: bytes) -> str:
        """Add a piece; give the text that is whole by now, perhaps none."""
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """Give what is left of a character that will not be completed."""
        return self._decoder.decode(b"", final=True)
