"""Incremental UTF-8 decoding."""

from codecs import utf_8_decode


class TextDecoder:
    """Incremental UTF-8 decoder; characters may be split over pieces.

    Invalid bytes become U+FFFD. Any split of the same bytes gives the same text.
    """

    def __init__(self) -> None:
        self._rest = b""  # the beginning of a character

    def feed(self, piece: bytes) -> str:
        """Decode a piece; return the characters that are complete, possibly none."""
        if self._rest:
            piece = self._rest + piece
        text, n_decoded = utf_8_decode(piece, "replace", False)  # noqa: FBT003  # not final
        self._rest = piece[n_decoded:]
        return text

    def finish(self) -> str:
        """End the input; return U+FFFD for an incomplete character."""
        rest, self._rest = self._rest, b""
        return rest.decode(errors="replace")
