"""What commands read and print, and how they fail."""

import os
import sys
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TextIO

EXIT_OK: Final = 0
EXIT_NOT_READY: Final = 1
EXIT_ERROR: Final = 2


@dataclass
class CommandError(Exception):
    """A command cannot go on: one line, and perhaps something to type."""

    text: str
    hint: str = ""

    def __str__(self) -> str:
        return self.text


def fail(error: CommandError) -> int:
    """Print an error; give the exit code."""
    say(f"error: {error.text}")
    if error.hint:
        say(f"\nhint: {error.hint}")
    return EXIT_ERROR


def say(text: str, *, end: str = "\n") -> None:
    """Print words for a person, if anybody can read them."""
    if sys.stderr is not None:  # with which they would be printed to stdout
        with suppress(OSError):
            print(text, end=end, file=sys.stderr, flush=True)


def data(text: str, *, end: str = "\n") -> None:
    """Print what the command is for, at once.

    Raises:
        CommandError: it cannot be printed.
        BrokenPipeError: whoever read it has had enough.
    """
    if sys.stdout is None:
        raise CommandError("stdout: closed")
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        _give_up_stdout()
        raise CommandError(f"stdout: {error.strerror}") from error


def stdin() -> TextIO:
    """Give what is piped into the command.

    Raises:
        CommandError: nothing is.
    """
    if sys.stdin is None:
        raise CommandError("stdin: closed")
    return sys.stdin


def _give_up_stdout() -> None:
    """Have what could not be written go nowhere, or Python tries again at its end."""
    with suppress(OSError):  # no file of the system's
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def printable(text: str) -> str:
    """Make a model's text safe for a terminal, or leave it as it is for anything else.

    What could steer a terminal or turn the direction of what follows is replaced.
    """
    if sys.stdout is None or not sys.stdout.isatty():
        return text
    return harmless(text)


def harmless(text: str) -> str:
    """Replace what could steer a terminal, or turn the direction of what follows."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if _steers(char) else char for char in text
    )


def _steers(char: str) -> bool:
    if char in "\n\t":
        return False
    return unicodedata.category(char) in ("Cc", "Cs") or char in _TURNS


_TURNS: Final = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""Marks that turn the direction of writing."""
