"""The progress of downloads: a bar on a terminal, some lines in a pipe."""

import time
from collections.abc import Callable
from typing import Final, Self

from inferd.cli.console import ProgressLine
from inferd.cli.models.opening import size
from inferd.models.pull.download import Progress, WantedFile
from inferd.terminal import print_stderr, stderr_is_terminal

BAR_CELLS: Final = 20
LINE_PERCENT: Final = 10
"""Per cent of a file after which a pipe gets another line."""


class TransferProgress:
    """The progress of a model's files; use it as a context, whose end empties the line.

    Args:
        clock: tells seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = ProgressLine()
        self._clock = clock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.clear()

    def of_file(self, wanted: WantedFile) -> Progress:
        """Return what shows the progress of a file."""
        began, n_before, shown = self._clock(), -1, -1
        per_step = 1 if stderr_is_terminal() else LINE_PERCENT

        def show(n_done: int, n_bytes: int | None) -> None:
            nonlocal n_before, shown
            n_before = n_done if n_before < 0 else n_before
            step = 100 * n_done // n_bytes // per_step if n_bytes else 0
            if step == shown and n_bytes:
                return
            elapsed_s = self._clock() - began
            rate = (n_done - n_before) / elapsed_s if elapsed_s > 0 else 0.0
            text = f"{wanted.name}: {describe_transfer(n_done, n_bytes, rate)}"
            if stderr_is_terminal():
                self._line.show(text)
            elif step != shown:
                print_stderr(text)
            shown = step

        return show


def describe_transfer(n_done: int, n_bytes: int | None, rate: float) -> str:
    """Describe how much of a file is there.

    Args:
        n_done: bytes that are there.
        n_bytes: of the file; ``None`` if that is not known.
        rate: bytes a second; 0 if that is not known.
    """
    speed = f", {size(int(rate))}/s" if rate else ""
    if not n_bytes:
        return f"{size(n_done)}{speed}"
    filled = BAR_CELLS * n_done // n_bytes
    cells = "#" * filled + "-" * (BAR_CELLS - filled)
    left = f", {(n_bytes - n_done) / rate:.0f} s left" if rate else ""
    percent = 100 * n_done // n_bytes
    return f"[{cells}] {percent} % of {size(n_bytes)}{speed}{left}"
