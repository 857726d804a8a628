"""Use fewer threads while other processes want the cores.

ggml's threads wait for one another, spinning, hundreds of times a token. That is the
fastest way on a quiet machine. When another process takes one of their cores, all of them
wait for the one that is not running, and decoding becomes tens of times slower; with a
thread less it is nearly as fast as before. So the number follows what others leave.
"""

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from inferd.worker.kept import KeptFile

WINDOW_S: Final = 0.25
"""Seconds over which the load is measured: 25 ticks of the kernel's count a core."""

TAKEN_CORES: Final = 0.4
"""Load of others, in cores beyond whole ones, from which one more core counts as taken."""

CALM_S: Final = 1.0
"""Seconds in a row that must allow more threads before they are used."""


class Window(NamedTuple):
    """What others used of our cores for a while."""

    cores: float
    seconds: float


class ThreadGovernor:
    """Decides how many threads to decode with; knows no clock.

    Args:
        n_cores: cores that this process may use.
        max_threads: threads to use on a quiet machine.
    """

    def __init__(self, *, n_cores: int, max_threads: int) -> None:
        self._n_cores = n_cores
        self._max_threads = max_threads
        self._n_left = n_cores
        self._calm_s = 0.0

    def observe(self, window: Window) -> None:
        """Take note of the cores that others used in a window.

        What they take is theirs at once, what they leave is used after a calm second.
        """
        n_taken = int(window.cores + 1 - TAKEN_CORES)
        n_left = max(1, self._n_cores - n_taken)
        self._calm_s = self._calm_s + window.seconds if n_left > self._n_left else 0.0
        if n_left < self._n_left or self._calm_s >= CALM_S:
            self._n_left = n_left
            self._calm_s = 0.0

    def threads(self, n_busy: int) -> int:
        """Give the threads to use while this process itself keeps so many cores busy."""
        return max(1, min(self._max_threads, self._n_left - n_busy))


class OtherLoad:
    """Measures how many of our cores other processes use.

    Where the kernel does not tell, they use none.
    """

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = KeptFile(stat)
        self._asked_at = time.monotonic()
        self._cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        self._began = self._read()

    def resume(self) -> None:
        """Measure from here on, if nobody asked for a window: what others did is past."""
        if time.monotonic() - self._asked_at > WINDOW_S:
            self._began = self._read()

    def measure(self) -> Window | None:
        """Give the load since the last measurement; ``None`` if that is not long ago."""
        began, now = self._began, time.monotonic()
        self._asked_at = now
        if now - began[0] < WINDOW_S:
            return None
        self._began = self._read()
        elapsed_s = self._began[0] - began[0]
        cores = (self._began[1] - began[1]) / elapsed_s
        return Window(max(0.0, cores), elapsed_s)

    def _read(self) -> tuple[float, float]:
        """Give the time, and the seconds that others have used our cores so far."""
        times = os.times()
        own_s = times.user + times.system
        return time.monotonic(), self._busy_s() - own_s

    def _busy_s(self) -> float:
        try:
            lines = self._stat.read().splitlines()
        except OSError:
            return 0.0
        n_ticks = 0
        for line in lines:
            name, _, counts = line.partition(" ")
            if name in self._cores:
                user, nice, system, _idle, _iowait, irq, softirq, *_ = counts.split()
                n_ticks += sum(map(int, (user, nice, system, irq, softirq)))
        return n_ticks / os.sysconf("SC_CLK_TCK")
