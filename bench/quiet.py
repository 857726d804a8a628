"""Measure while nobody else uses the machine, as far as that can be had."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from bench.daemon import processes, stat_fields

T = TypeVar("T")

LOUD: Final = 0.15
"""Cores that others use from which on a measurement is disturbed: threads that wait for
each other in a loop lose most of their speed when one of them is sent to sleep."""
LOOK_S: Final = 1.0
"""Seconds over which the machine is looked at."""
PATIENCE_S: Final = 60.0
"""Seconds to wait for it to be quiet."""
TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")


class Measured(NamedTuple, Generic[T]):
    """What was measured, and how many cores others used meanwhile."""

    value: T
    others: float

    @property
    def is_disturbed(self) -> bool:
        """Whether it says little."""
        return self.others > LOUD


def undisturbed(measure: Callable[[], T], *, tries: int) -> Measured[T]:
    """Measure when it is quiet; again if it was not, and in the end as it is."""
    if tries > 1:
        wait_until_quiet()
    measured = Measured(*with_others(measure))
    if measured.is_disturbed and tries > 1:
        return undisturbed(measure, tries=tries - 1)
    return measured


def wait_until_quiet() -> None:
    """Wait until others leave the machine alone, but not for ever."""
    _wait_for_room(other_cpu_s)


def wait_until_idle() -> None:
    """Wait, not for ever, until nobody uses the machine, what we have started neither.

    A server may be at work for some seconds after it has said that it is ready.
    """
    _wait_for_room(all_cpu_s)


def _wait_for_room(cpu_s: Callable[[], float]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if _with_use(cpu_s, lambda: time.sleep(LOOK_S))[1] <= LOUD:
            return


def with_others(measure: Callable[[], T]) -> tuple[T, float]:
    """Do something; tell how many cores others used meanwhile."""
    return _with_use(other_cpu_s, measure)


def _with_use(cpu_s: Callable[[], float], measure: Callable[[], T]) -> tuple[T, float]:
    before, began_at = cpu_s(), time.monotonic()
    value = measure()
    return value, (cpu_s() - before) / (time.monotonic() - began_at)


def other_cpu_s() -> float:
    """Give the processor time that others than this process and its own have taken."""
    return all_cpu_s() - own_ticks() / TICKS_A_SECOND


def all_cpu_s() -> float:
    """Give the processor time that all processes have taken."""
    user, nice, system, *_ = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return (int(user) + int(nice) + int(system)) / TICKS_A_SECOND


def own_ticks() -> int:
    """Add up the ticks of this process and of all below it, ended ones too."""
    stats = {int(path.name): stat_fields(path) for path in processes()}
    own: set[int] = set()
    found = {os.getpid()}
    while found:  # a child's number may be below its parent's
        own |= found
        found = {
            pid for pid, fields in stats.items() if fields and int(fields[1]) in found
        }
    return sum(sum(map(int, stats[pid][11:15])) for pid in own)
