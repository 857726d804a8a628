"""The list, in its order."""

from collections.abc import Sequence
from typing import Final, Protocol

from torture.items import (
    allocations,
    clock,
    crash_loop,
    crowd,
    daemon_kills,
    descriptors,
    full_disk,
    kills,
    leavers,
    lines,
    memory,
    model_kills,
    native_crash,
    permissions,
    service,
    shutdown,
    slow,
    soak,
    stalled_log,
    swaps,
    unit,
)
from torture.outcome import Context


class Item(Protocol):
    """A module of ``torture.items``."""

    @property
    def KEY(self) -> str:  # noqa: N802  # a module's constant
        """Its number."""

    @property
    def NAME(self) -> str:  # noqa: N802  # a module's constant
        """What it does, in some words."""

    def run(self, context: Context) -> None:
        """Do it; the context is told what came of it.

        Raises:
            SkippedError: this machine lacks what it takes.
            AssertionError: the daemon did not keep its word.
        """


ITEMS: Final[Sequence[Item]] = (
    kills,
    model_kills,
    native_crash,
    crash_loop,
    lines,
    crowd,
    slow,
    leavers,
    descriptors,
    full_disk,
    stalled_log,
    memory,
    allocations,
    clock,
    permissions,
    service,
    unit,
    soak,
    shutdown,
    daemon_kills,
    swaps,
)
BY_KEY: Final = {item.KEY: item for item in ITEMS}
