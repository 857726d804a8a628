"""The last lines on the screen, which may still change; pure.

What is returned is to be written as it is: it moves the cursor up to the first line that has
changed and writes on from there. Lines that have left the screen at its top are final, since no
terminal lets them be changed, so what has been scrolled away is never written twice.
"""

from collections.abc import Sequence
from typing import Final

_CLEAR_BELOW: Final = "\x1b[J"
_NEW_LINE: Final = "\r\n"


class LiveRegion:
    """Draws lines, and draws those again that have changed.

    Args:
        height: rows of the screen.
    """

    def __init__(self, height: int) -> None:
        self.height = height
        self._drawn: list[str] | None = None
        """The lines on the screen, the cursor behind the last; ``None`` for none."""

    def draw(self, lines: Sequence[str]) -> str:
        """Return what replaces the drawn lines by others."""
        before, self._drawn = self._drawn, [*lines] or None
        if before is None:
            return _NEW_LINE.join(lines)
        n_final = max(0, len(before) - max(self.height - 1, 1))
        if n_final >= len(lines) > 0:
            self._drawn = [*before[:n_final], ""]
        wanted = self._drawn or []
        n_kept = _n_common(before, wanted, n_final)
        if n_kept == len(before):
            return "".join(f"{_NEW_LINE}{line}" for line in wanted[n_kept:])
        n_kept = max(n_final, min(n_kept, len(wanted) - 1))
        n_up = len(before) - 1 - n_kept
        up = f"\x1b[{n_up}A" if n_up else ""
        return f"\r{up}{_CLEAR_BELOW}{_NEW_LINE.join(wanted[n_kept:])}"

    def finish(self, lines: Sequence[str]) -> str:
        """Return what draws lines for good; the next ones are drawn below them."""
        drawn = self.draw(lines)
        end = _NEW_LINE if self._drawn is not None else ""
        self._drawn = None
        return drawn + end

    def abandon(self) -> str:
        """Return what leaves the drawn lines as they are; the next ones are drawn below."""
        return self.finish(self._drawn or ())


def _n_common(before: Sequence[str], lines: Sequence[str], n_final: int) -> int:
    """Return how many lines stay; those that have left the screen do in any case."""
    n_kept = n_final
    while n_kept < min(len(before), len(lines)) and before[n_kept] == lines[n_kept]:
        n_kept += 1
    return n_kept
