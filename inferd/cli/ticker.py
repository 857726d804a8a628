"""One line on a terminal that is written over and over, beside what is printed."""

import shutil

from inferd.terminal import is_watched, overwrite, visible


class Ticker:
    """Shows what is going on, where somebody looks on; nothing anywhere else.

    Before anything else is printed it has to be cleared.

    Args:
        is_wanted: whether there is a line for it.
    """

    def __init__(self, *, is_wanted: bool = True) -> None:
        self._is_seen = is_wanted and is_watched()
        self._is_shown = False

    def show(self, text: str) -> None:
        """Write over what is there: the end of a text that is too long for a line."""
        if self._is_seen:
            room = shutil.get_terminal_size().columns - 1
            overwrite(visible(" ".join(text.split()))[-room:])
            self._is_shown = True

    def clear(self) -> None:
        """Leave the line empty."""
        if self._is_shown:
            overwrite("")
            self._is_shown = False
