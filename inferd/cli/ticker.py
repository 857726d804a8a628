"""One line on a terminal that is written over and over, beside what is printed."""

import shutil
import sys

from inferd.cli.console import harmless, say

_CLEAR = "\r\x1b[2K"


class Ticker:
    """Shows what is going on, where somebody looks on; nothing anywhere else.

    Before anything else is printed it has to be cleared.

    Args:
        is_wanted: whether there is a line for it.
    """

    def __init__(self, *, is_wanted: bool = True) -> None:
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._is_seen = is_wanted and is_terminal
        self._is_shown = False

    def show(self, text: str) -> None:
        """Write over what is there: the end of a text that is too long for a line."""
        if self._is_seen:
            room = shutil.get_terminal_size().columns - 1
            line = harmless(" ".join(text.split()))
            say(f"{_CLEAR}{line[-room:]}", end="")
            self._is_shown = True

    def clear(self) -> None:
        """Leave the line empty."""
        if self._is_shown:
            say(_CLEAR, end="")
            self._is_shown = False
