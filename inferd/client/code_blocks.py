"""Separate code blocks from prose while an answer streams.

The protocol knows nothing of Markdown: text between fences is text. This is for programs
that show or save code while it is generated.

Source: CommonMark 0.31, fenced code blocks.
"""

import re
from typing import Final

from msgspec import Struct

FENCE_LINE_MAX_CHARS: Final = 1000
"""Longest line that may be a fence, without its newline; a longer one is prose or code."""

_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")
_MAY_OPEN: Final = re.compile(r" {0,3}(`{0,2}|~{0,2}|`{3,}[^`]*|~{3,}.*)", re.DOTALL)
_OPENS: Final = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*(\S*).*\n", re.DOTALL)
_CLOSES: Final = re.compile(r" {0,3}(`+|~+)[ \t]*\r?\n?")


class Prose(Struct, frozen=True):
    """Text outside code."""

    text: str


class CodeBegins(Struct, frozen=True):
    """The start of a code block."""

    language: str
    """The first word after the fence, or an empty string."""


class Code(Struct, frozen=True):
    """Text of a code block."""

    text: str


class CodeEnds(Struct, frozen=True):
    """The end of a code block; missing if the text ends within the block."""


Part = Prose | CodeBegins | Code | CodeEnds


class CodeBlocks:
    """Incremental parser that splits text into prose and code, as soon as either is certain.

    The lines of fences are removed; all other text is unchanged. If the same text is fed in
    other pieces, the same prose and code come out, perhaps cut in other places.

    Bounds:
        Buffers the beginning of a line, at most ``FENCE_LINE_MAX_CHARS``.
    """

    def __init__(self) -> None:
        self._held = ""
        """The beginning of a line that may be a fence."""
        self._is_within_line = False
        self._fence = ""
        """The fence that opened the current block; empty in prose."""

    def feed(self, text: str) -> list[Part]:
        """Add text; return the parts that are certain now, perhaps none."""
        parts: list[Part] = []
        for piece in _LINES.findall(self._held + text):
            self._held = ""
            parts += self._read(piece)
        return parts

    def finish(self) -> list[Part]:
        """End the text; return what was buffered."""
        held, self._held = self._held, ""
        if self._fence and self._closes(held):
            self._fence = ""
            return [CodeEnds()]
        return self._text(held)

    def _read(self, piece: str) -> list[Part]:
        """Process a line, or the part of it that has come."""
        if self._is_within_line:
            return self._text(piece)
        is_whole = piece.endswith("\n")
        if not is_whole and self._may_be_fence(piece):
            self._held = piece
            return []
        if is_whole and (fence := self._match_fence(piece)):
            return [fence]
        return self._text(piece)

    def _text(self, piece: str) -> list[Part]:
        self._is_within_line = bool(piece) and not piece.endswith("\n")
        if not piece:
            return []
        return [Code(piece) if self._fence else Prose(piece)]

    def _may_be_fence(self, piece: str) -> bool:
        if len(piece) > FENCE_LINE_MAX_CHARS:
            return False
        if not self._fence:
            return _MAY_OPEN.fullmatch(piece) is not None
        mark = re.escape(self._fence[0])
        return re.fullmatch(rf" {{0,3}}{mark}*[ \t\r]*", piece) is not None

    def _match_fence(self, line: str) -> Part | None:
        """Return the start or the end of a block, if a complete line is a fence."""
        if len(line.removesuffix("\n")) > FENCE_LINE_MAX_CHARS:
            return None  # its beginning would have been returned if it came in pieces
        if self._fence:
            if not self._closes(line):
                return None
            self._fence = ""
            return CodeEnds()
        opening = _OPENS.fullmatch(line)
        if opening is None or ("`" in opening[1] and "`" in line[opening.end(1) :]):
            return None
        self._fence = opening[1]
        return CodeBegins(opening[2])

    def _closes(self, line: str) -> bool:
        found = _CLOSES.fullmatch(line)
        return found is not None and found[1].startswith(self._fence)
