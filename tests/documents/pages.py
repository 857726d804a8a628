"""What the documents have between fences: commands, programs, files and frames.

Every test of a document takes its commands and programs from here, and `catalogue.py` says of
each which test runs it.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = tuple(
    sorted(
        path.relative_to(ROOT).as_posix()
        for pattern in ("*.md", "docs/*.md", "protocol/**/*.md")
        for path in ROOT.glob(pattern)
    )
)
"""All documents for users and authors of clients, by their paths in the checkout."""
_FENCED: Final = re.compile(r"^```([\w{}-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A text between fences."""

    page: str
    language: str
    text: str


class Command(NamedTuple):
    """A line for a shell: of a block of ``sh``, or behind ``$`` in one of ``console``."""

    page: str
    text: str


@cache
def blocks_of(page: str) -> tuple[Block, ...]:
    """Give all blocks of a page, in order."""
    found = _FENCED.findall((ROOT / page).read_text())
    return tuple(Block(page, language, text) for language, text in found)


def texts(page: str, language: str) -> list[str]:
    """Give the texts of a page's blocks in one language."""
    return [each.text for each in blocks_of(page) if each.language == language]


def commands(*pages: str) -> list[str]:
    """Give the commands of pages, in order."""
    return [each.text for page in pages for each in commands_of(page)]


def command(page: str, words: str) -> str:
    """Give the one command of a page that has these words."""
    [found] = [each.text for each in commands_of(page) if words in each.text]
    return found


def commands_of(page: str) -> Iterator[Command]:
    """Give the commands of a page, with it."""
    for block in blocks_of(page):
        lines = block.text.splitlines()
        if block.language == "sh":
            yield from (Command(page, line) for line in lines)
        elif block.language == "console":
            typed = (line for line in lines if line.startswith("$ "))
            yield from (Command(page, line.removeprefix("$ ")) for line in typed)
