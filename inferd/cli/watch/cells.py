"""Texts in the cells of a terminal: a line has so many, and some characters take two."""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from inferd.terminal import escape

_ELLIPSIS = "…"


def n_cells(text: str) -> int:
    """Return the cells that a text takes in a terminal, without control characters."""
    return len(text) if text.isascii() else sum(map(_width, text))


def fit(text: str, width: int, *, is_number: bool = False) -> str:
    """Write a text in exactly so many cells: cut with an ellipsis, or filled with spaces.

    Args:
        text: from anywhere; what could control a terminal is escaped.
        width: 0 for none.
        is_number: whether it ends at the right edge.
    """
    text = escape(text)
    if n_cells(text) > width:
        text = _cut(text, width)
    space = " " * (width - n_cells(text))
    return space + text if is_number else text + space


def flow(parts: Sequence[str], width: int) -> list[str]:
    """Write parts into lines, with two spaces between those of a line.

    A part that is wider than a line is cut.
    """
    lines: list[str] = []
    for part in map(escape, parts):
        if lines and n_cells(lines[-1]) + 2 + n_cells(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(part if n_cells(part) <= width else _cut(part, width))
    return lines


class Column(NamedTuple):
    """A column of a table."""

    title: str
    width: int
    """Cells; the first column has what the others leave."""
    rank: int
    """The columns with the highest ranks are left out where not all fit."""
    is_number: bool = True


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> list[str]:
    """Write a table, its titles first, with those columns that fit.

    Args:
        columns: the first one is always there, in ``width`` cells at least.
        rows: a text for each column.
        width: cells of a line.
    """
    first, *others = columns
    room = width - first.width
    kept: set[str] = set()
    for column in sorted(others, key=lambda each: each.rank):
        if column.width + 1 > room:
            break
        kept.add(column.title)
        room -= column.width + 1
    widths = [min(width, first.width + max(0, room))]
    widths += [each.width if each.title in kept else 0 for each in others]
    titles = [each.title for each in columns]
    return [_row(columns, row, widths) for row in (titles, *rows)]


def _row(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(
        fit(text, width, is_number=column.is_number and at > 0)
        for at, (column, text, width) in enumerate(
            zip(columns, row, widths, strict=True)
        )
        if width or at == 0
    )


def _cut(text: str, width: int) -> str:
    """Cut a text that is too wide."""
    if width < 1:
        return ""
    kept, room = "", width - 1
    for char in text:
        room -= _width(char)
        if room < 0:
            break
        kept += char
    return kept + _ELLIPSIS


def _width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
