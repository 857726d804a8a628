"""Markdown that still comes, split into blocks that can be drawn one after another; pure.

A block is finished where nothing that follows can change how it looks: at the blank line
behind a paragraph, at the next item of a list, at the end of a code block.
"""

import re
from dataclasses import dataclass
from typing import Final

MAX_BLOCK_CHARS: Final = 8 * 1024
"""Characters of a block: each part of an answer has the last one drawn anew, which takes some
milliseconds for as many. A longer one is cut at the end of a line."""

_ITEM: Final = re.compile(r" ?(?:([-*+])|\d{1,9}([.)]))[ \t]")
_HEADING: Final = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_FENCE: Final = re.compile(r"[ \t]*(`{3,}|~{3,})")
_INDENT: Final = re.compile(r"\t| {2,}")
_RULED: Final = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t:-]*)+$")


@dataclass(frozen=True)
class MarkdownBlock:
    """A block: its text, and how it follows the one before it."""

    text: str
    is_joined: bool = False
    """Whether no empty line is between it and the block before it: both are of one list, or of
    one long block."""

    @property
    def is_table(self) -> bool:
        """Whether it is a table, whose first lines change with its last."""
        first, _, rest = self.text.partition("\n")
        return "|" in first and bool(_RULED.match(rest.partition("\n")[0]))


def _are_items(text: str, line: str) -> bool:
    """Tell whether a line is the next item of the list that a text is of."""
    first, second = _ITEM.match(text), _ITEM.match(line)
    return bool(first and second and first.groups() == second.groups())


class BlockSplitter:
    """Splits the text of an answer.

    Bounds: a block has ``MAX_BLOCK_CHARS``, and the last line as much more.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        """Of the block that is not finished, with their ends."""
        self._n_chars = 0
        self._partial = ""
        """The last line, whose end has not come."""
        self._fence = ""
        """What has opened the code block that is not closed."""
        self._opening = ""
        """The line that has."""
        self._is_joined = False
        self._has_blank = False
        """Whether its last line is blank."""

    def feed(self, text: str) -> list[MarkdownBlock]:
        """Add text; return the blocks that are finished by it."""
        *whole, partial = (self._partial + text).split("\n")
        finished: list[MarkdownBlock] = []
        for line in whole:
            added, rest = self._long(line)
            finished += [*added, *self._add(f"{rest}\n")]
        added, self._partial = self._long(partial)
        finished += added
        if self._has_blank and self._is_new_paragraph():
            finished += self._finish()
        return finished

    def _is_new_paragraph(self) -> bool:
        """Tell whether the last line, of which only a part has come, begins a block.

        Behind a list it may be an item of it, which its first characters do not tell.
        """
        text = "".join(self._lines).lstrip("\n")
        begins = bool(self._partial) and not self._partial[0].isspace()
        return (
            bool(text.strip()) and begins and not self._fence and not _ITEM.match(text)
        )

    def _long(self, line: str) -> tuple[list[MarkdownBlock], str]:
        """Finish what is too long of a line; return the rest of it."""
        finished: list[MarkdownBlock] = []
        while len(line) > MAX_BLOCK_CHARS:
            start, line = line[:MAX_BLOCK_CHARS], line[MAX_BLOCK_CHARS:]
            finished += [*self._add(start), *self._cut()]
        return finished, line

    @property
    def rest(self) -> MarkdownBlock:
        """The block that is not finished."""
        return MarkdownBlock("".join([*self._lines, self._partial]), self._is_joined)

    def _add(self, line: str) -> list[MarkdownBlock]:
        finished: list[MarkdownBlock] = []
        if not self._fence and line.strip():
            finished = self._before(line)
        self._lines.append(line)
        self._n_chars += len(line)
        if self._fence:
            finished += self._in_fence(line)
        elif not line.strip():
            self._has_blank = True
        elif opened := _FENCE.match(line):
            self._fence, self._opening = opened[0], line
        elif _HEADING.match(line) and len(self._lines) == 1:
            finished += self._finish()
        if self._n_chars > MAX_BLOCK_CHARS:
            finished += self._cut()
        return finished

    def _before(self, line: str) -> list[MarkdownBlock]:
        """Finish the block that a line does not belong to."""
        text = "".join(self._lines)
        if not text.strip() or _INDENT.match(line):
            self._has_blank = False
            return []
        continues = _are_items(text.lstrip("\n"), line)
        is_item = _ITEM.match(text.lstrip("\n")) and _ITEM.match(line)
        starts = is_item or _HEADING.match(line) or _FENCE.match(line)
        if self._has_blank or starts:
            return self._finish(is_next_joined=continues)
        return []

    def _in_fence(self, line: str) -> list[MarkdownBlock]:
        mark = self._fence.strip()
        is_end = line.strip().startswith(mark) and not line.strip().strip(mark[0])
        if not is_end:
            return []
        is_indented, self._fence = bool(_INDENT.match(self._fence)), ""
        return [] if is_indented or not self._begins_with(mark) else self._finish()

    def _begins_with(self, mark: str) -> bool:
        return "".join(self._lines).lstrip().startswith(mark)

    def _cut(self) -> list[MarkdownBlock]:
        """Finish a block that is too long; a code block goes on in the next."""
        fence = self._fence
        finished = self._finish(is_next_joined=True)
        if fence:
            self._fence = fence
            self._lines.append(self._opening)
        return finished

    def _finish(self, *, is_next_joined: bool = False) -> list[MarkdownBlock]:
        block = MarkdownBlock("".join(self._lines), self._is_joined)
        self._lines.clear()
        self._n_chars, self._fence = 0, ""
        self._has_blank, self._is_joined = False, is_next_joined
        return [block]
