"""Tell code blocks from prose while an answer streams.

The wire knows nothing of Markdown: what a model writes between fences is text. This is
for programs that show or save code as it comes.

Source: CommonMark 0.31, fenced code blocks.
"""

import re
from typing import Final

from msgspec import Struct

FENCE_LINE_MAX_CHARS: Final = 1000
"""Characters of a line that may be a fence, its end aside; a longer one is prose, or code."""

_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")
_MAY_OPEN: Final = re.compile(r" {0,3}(`{0,2}|~{0,2}|`{3,}[^`]*|~{3,}.*)", re.DOTALL)
_OPENS: Final = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*(\S*).*\n", re.DOTALL)
_CLOSES: Final = re.compile(r" {0,3}(`+|~+)[ \t]*\r?\n?")


class Prose(Struct, frozen=True):
    """Text outside code."""

    text: str


class CodeBegins(Struct, frozen=True):
    """A code block begins here."""

    language: str
    """The first word after the fence, or nothing."""


class Code(Struct, frozen=True):
    """Text of a code block."""

    text: str


class CodeEnds(Struct, frozen=True):
    """The code block ends here; the text may also end without it."""


Part = Prose | CodeBegins | Code | CodeEnds


class CodeBlocks:
    """Turns text into prose and code, each as soon as it is certain which.

    Fences and their lines are taken out; all else stays as it is. Any split of the same
    text gives the same parts, but for where text is cut.

    Bounds:
        Holds the beginning of a line, ``FENCE_LINE_MAX_CHARS`` at most.
    """

    def __init__(self) -> None:
        self._held = ""
        """The beginning of a line that may be a fence."""
        self._is_within_line = False
        self._fence = ""
        """What opened the block that we are in, or nothing."""

    def feed(self, text: str) -> list[Part]:
        """Add text; give what is certain by now, perhaps nothing."""
        parts: list[Part] = []
        for piece in _LINES.findall(self._held + text):
            self._held = ""
            parts += self._read(piece)
        return parts

    def finish(self) -> list[Part]:
        """Say that no more text comes; give what was held back."""
        held, self._held = self._held, ""
        if self._fence and self._closes(held):
            self._fence = ""
            return [CodeEnds()]
        return self._text(held)

    def _read(self, piece: str) -> list[Part]:
        """Take a line, or the part of it that is there."""
        if self._is_within_line:
            return self._text(piece)
        is_whole = piece.endswith("\n")
        if not is_whole and self._may_be_fence(piece):
            self._held = piece
            return []
        if is_whole and (fence := self._passed(piece)):
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

    def _passed(self, line: str) -> Part | None:
        """Give the beginning or the end of a block, if a whole line is one."""
        if len(line.removesuffix("\n")) > FENCE_LINE_MAX_CHARS:
            return None  # in pieces, its beginning would be out already
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
