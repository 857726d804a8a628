"""Writes lines to the terminal, whose size may change at any moment."""

import os
from collections.abc import Callable, Sequence
from typing import Final

from inferd.cli.chat.screen.live_region import LiveRegion
from inferd.cli.chat.screen.rendering import LineStyle

PASTE_MARKS: Final = "\x1b[?2004h"
"""Without them, each line that is pasted while an answer comes would be a prompt of its own. The
line editor turns them on for itself, and off behind each prompt."""


class Painter:
    """Draws lines at the end of what the terminal shows.

    Args:
        write: writes to the terminal, as ``inferd.terminal.print_styled`` does.
        size: asks for the columns and rows.
        style: how lines are made; its width follows from the terminal's.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        size: Callable[[], os.terminal_size],
        style: LineStyle,
    ) -> None:
        self._write = write
        self._size = size
        self.style = style
        self._region = LiveRegion(1)
        self.measure()

    @property
    def n_live(self) -> int:
        """Lines that can be changed as long as they are the last."""
        return max(self._region.height - 2, 1)

    def measure(self) -> bool:
        """Ask for the size of the terminal; tell whether lines have to be made anew.

        After another width the terminal may have broken the drawn lines at other places, so
        they stay as they are, and the next ones come below.
        """
        size = self._size()
        self._region.height = size.lines
        width = max(size.columns - 1, 1)  # of the last column terminals differ
        if width == self.style.width:
            return False
        self._write(self._region.abandon())
        self.style = LineStyle(width, self.style.has_colour, self.style.has_styles)
        return True

    def keep_pastes_whole(self) -> None:
        """Have the terminal mark the ends of what is pasted before the next prompt."""
        self._write(PASTE_MARKS)

    def draw(self, lines: Sequence[str]) -> None:
        """Show lines that may still change."""
        if drawn := self._region.draw(lines):
            self._write(drawn)

    def finish(self, lines: Sequence[str]) -> None:
        """Show lines for good."""
        if drawn := self._region.finish(lines):
            self._write(drawn)

    def note(self, text: str, style: str = "dim") -> None:
        """Show a message of this program for good."""
        self.finish(self.style.plain(text, style))
