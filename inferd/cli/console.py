"""How commands fail, and what is piped into them; ``inferd.terminal`` is what they print."""

import sys
from dataclasses import dataclass
from typing import Final, TextIO

from inferd.terminal import say

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
        say("")
        say(f"hint: {error.hint}")
    return EXIT_ERROR


def stdin() -> TextIO:
    """Give what is piped into the command.

    Raises:
        CommandError: nothing is.
    """
    if sys.stdin is None:
        raise CommandError("stdin: closed")
    return sys.stdin
