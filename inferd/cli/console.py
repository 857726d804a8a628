"""What commands print, and how they fail."""

import sys
from dataclasses import dataclass
from typing import Final

EXIT_OK: Final = 0
EXIT_NOT_READY: Final = 1
EXIT_ERROR: Final = 2


@dataclass
class CommandError(Exception):
    """A command cannot go on: one line, and perhaps something to type."""

    text: str
    hint: str = ""


def fail(error: CommandError) -> int:
    """Print an error; give the exit code."""
    say(f"error: {error.text}")
    if error.hint:
        say(f"\nhint: {error.hint}")
    return EXIT_ERROR


def say(text: str, *, end: str = "\n") -> None:
    """Print words for a person."""
    print(text, end=end, file=sys.stderr, flush=True)


def data(text: str, *, end: str = "\n") -> None:
    """Print what the command is for, at once."""
    print(text, end=end, flush=True)


def printable(text: str) -> str:
    """Make a model's text safe for a terminal: no control characters but white space.

    Where stdout is no terminal the text is left as it is.
    """
    if not sys.stdout.isatty():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )
