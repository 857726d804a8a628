"""Errors, stdin and the progress line of commands; ``inferd.terminal`` does the printing."""

import shutil
import sys
from dataclasses import dataclass
from typing import Final, TextIO

from inferd.terminal import escape, overwrite_line, print_stderr, stderr_is_terminal

EXIT_OK: Final = 0
EXIT_NOT_READY: Final = 1
EXIT_ERROR: Final = 2


@dataclass
class CommandError(Exception):
    """An error that ends a command: one line, and perhaps a hint at what to type."""

    text: str
    hint: str = ""

    def __str__(self) -> str:
        return self.text


def fail(error: CommandError) -> int:
    """Print an error and return the exit code."""
    print_stderr(f"error: {error.text}")
    if error.hint:
        print_stderr("")
        print_stderr(f"hint: {error.hint}")
    return EXIT_ERROR


def stdin() -> TextIO:
    """Return stdin.

    Raises:
        CommandError: it is closed.
    """
    if sys.stdin is None:
        raise CommandError("stdin: closed")
    return sys.stdin


class ProgressLine:
    """One line on stderr that is overwritten; prints only if stderr is a terminal.

    ``clear`` it before printing anything else.

    Args:
        is_wanted: False never shows anything.
    """

    def __init__(self, *, is_wanted: bool = True) -> None:
        self._is_enabled = is_wanted and stderr_is_terminal()
        self._is_shown = False

    def show(self, text: str) -> None:
        """Replace the line; of a text that is too long, show the end."""
        if self._is_enabled:
            width = shutil.get_terminal_size().columns - 1
            overwrite_line(escape(" ".join(text.split()))[-width:])
            self._is_shown = True

    def clear(self) -> None:
        """Empty the line."""
        if self._is_shown:
            overwrite_line("")
            self._is_shown = False
