"""Use fewer threads while other processes use the cores.

ggml's threads synchronise by spinning, hundreds of times per token. That is the fastest way
on an idle machine. When another process takes one of their cores, all of them wait for the
one that is not running, and decoding becomes tens of times slower; with one thread less it
is nearly as fast as before. So the number of threads follows the load by others.
"""

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from inferd.worker.proc_file import ProcFile

WINDOW_S: Final = 0.25
"""Seconds over which the load is measured: 25 kernel ticks per core."""

BUSY_CORE_SHARE: Final = 0.4
"""Load by others, as a fraction of a core, from which one more core counts as taken."""

CALM_S: Final = 1.0
"""Consecutive seconds that must allow more threads before they are used."""


class CpuLoad(NamedTuple):
    """Use of this process's cores by others, over a time."""

    cores: float
    seconds: float


class ThreadGovernor:
    """Governor of the number of decoding threads; knows no clock.

    Args:
        n_cores: cores that this process may use.
        max_threads: threads to use on an idle machine.
    """

    def __init__(self, *, n_cores: int, max_threads: int) -> None:
        self._n_cores = n_cores
        self._max_threads = max_threads
        self._n_left = n_cores
        self._calm_s = 0.0

    def observe(self, window: CpuLoad) -> None:
        """Note the cores that others used in a window.

        Threads are reduced at once, and added only after a calm second.
        """
        n_taken = int(window.cores + 1 - BUSY_CORE_SHARE)
        n_left = max(1, self._n_cores - n_taken)
        self._calm_s = self._calm_s + window.seconds if n_left > self._n_left else 0.0
        if n_left < self._n_left or self._calm_s >= CALM_S:
            self._n_left = n_left
            self._calm_s = 0.0

    def threads(self, n_busy: int) -> int:
        """Return the threads to use while this process keeps other cores busy itself."""
        return max(1, min(self._max_threads, self._n_left - n_busy))


class CpuLoadMeter:
    """Meter of the use of this process's cores by others.

    If the kernel does not report it, the use is 0.
    """

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = ProcFile(stat)
        self._measured_at = time.monotonic()
        self._cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        self._window_start = self._read()

    def resume(self) -> None:
        """Restart the window if it is stale: earlier load does not matter."""
        if time.monotonic() - self._measured_at > WINDOW_S:
            self._window_start = self._read()

    def measure(self) -> CpuLoad | None:
        """Return the load since the last measurement; ``None`` if that is too recent."""
        start, now = self._window_start, time.monotonic()
        self._measured_at = now
        if now - start[0] < WINDOW_S:
            return None
        self._window_start = self._read()
        elapsed_s = self._window_start[0] - start[0]
        cores = (self._window_start[1] - start[1]) / elapsed_s
        return CpuLoad(max(0.0, cores), elapsed_s)

    def _read(self) -> tuple[float, float]:
        """Return the time, and the CPU seconds that others have used so far."""
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
