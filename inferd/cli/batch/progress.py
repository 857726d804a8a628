"""How far a batch is, on stderr."""

from collections.abc import Callable
from time import monotonic

from inferd.cli.console import ProgressLine


class BatchProgress:
    """A line that counts what is done; shown only if stderr is a terminal.

    Args:
        clock: seconds on any monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._began_at = clock()
        self._line = ProgressLine()
        self._n_done = 0
        self.n_failed = 0

    def add(self, n_done: int = 1, *, is_failure: bool = False) -> None:
        """Count what is done now."""
        self._n_done += n_done
        self.n_failed += is_failure
        seconds = self._clock() - self._began_at
        rate = f", {self._n_done / seconds:.1f} a second" if seconds > 0 else ""
        failed = f", {self.n_failed} failed" if self.n_failed else ""
        self._line.show(f"{self._n_done} done{failed}{rate}")

    def clear(self) -> None:
        """Empty the line, before anything else is printed."""
        self._line.clear()
