"""Manual pages in the macros of man(7), from paragraphs with Markdown's marks."""

import re
import textwrap
from collections.abc import Iterable
from typing import Final, NamedTuple

NOTE: Final = (
    '.\\" Written by tools/regenerate.py; change what it follows from instead.\n'
)
NO_HYPHENS: Final = ".nh\n"
"""Or names of options would be hyphenated, which nobody could type."""
WIDTH: Final = 78
"""Columns of a line of source; more than 80 are a complaint of mandoc's."""
_MARK: Final = re.compile(r"`([^`]+)`")
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_NOTHING: Final = "\\&\n"
"""The paragraph of an entry that has none."""
_CONTROL: Final = (".", "'")
"""A line that begins with one of them would be a request to the formatter."""


class Title(NamedTuple):
    """What stands at the head and the foot of a page."""

    name: str
    section: int
    date: str
    source: str
    """The program and its version."""


def page(title: Title, sections: Iterable[tuple[str, str]]) -> str:
    """Write a page.

    Args:
        title: of the page.
        sections: their headings and contents; empty ones are left out.
    """
    head = f'.TH {title.name.upper()} {title.section} {title.date} "{title.source}"\n'
    parts = [f".SH {name}\n{content}" for name, content in sections if content]
    return NOTE + head + NO_HYPHENS + "".join(parts)


def name_line(name: str, text: str) -> str:
    """Write the line of a page's name, by which it is found."""
    return filled(f"{plain(name)} \\- {plain(text)}")


def plain(text: str) -> str:
    """Write a text without fonts in ASCII, with each hyphen as it is typed."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "".join(
        char if char.isascii() else f"\\[u{ord(char):04X}]" for char in escaped
    )


def bold(text: str) -> str:
    """Write what is typed as it stands."""
    return f"\\fB{plain(text)}\\fR"


def italic(text: str) -> str:
    """Write a place for something else."""
    return f"\\fI{plain(text)}\\fR"


def paragraph(text: str) -> str:
    """Fill a paragraph; what stands between backticks is bold."""
    return filled(_with_fonts(_LINK.sub(r"\1", text)))


def _with_fonts(text: str) -> str:
    pieces = _MARK.split(text)
    return "".join(
        bold(piece) if number % 2 else plain(piece)
        for number, piece in enumerate(pieces)
    )


def filled(roff: str) -> str:
    """Break a text in roff into lines, none of which is a request."""
    lines = textwrap.wrap(roff, WIDTH, break_long_words=False, break_on_hyphens=False)
    return "".join(f"{_guarded(line)}\n" for line in lines)


def lines_kept(text: str) -> str:
    """Write lines as they stand, in one width."""
    kept = "".join(f"{_guarded(plain(line))}\n" for line in text.splitlines())
    return f".EX\n{kept}.EE\n"


def tagged(tag: str, text: str) -> str:
    """Write an entry of a list.

    Args:
        tag: in roff.
        text: its paragraph.
    """
    return f".TP\n{tag}\n{paragraph(text) or _NOTHING}"


def _guarded(line: str) -> str:
    return f"\\&{line}" if line.startswith(_CONTROL) else line
