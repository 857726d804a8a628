"""Collect Python's garbage in small portions, as each collection blocks the event loop.

A collection visits every object of its generation, at 0.1 µs or more each: with a thousand
connections a full one takes 60 to 100 ms, and one of all that is two seconds old 20 to
90 ms. Python's own threshold does not bound that: it counts allocations less frees, and
under load about as many old objects are freed as new ones are made.

So what is young is collected each time that the loop has used some milliseconds of
processor time, which bounds how many objects there can be. What survives one such
collection is visited by full ones alone. The daemon makes few reference cycles.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from inferd.limits.server import (
    GC_FULL_S,
    GC_INTERVAL_S,
    GC_YOUNG_OBJECTS,
    GC_YOUNG_S,
)

YOUNG: Final = 1
"""The older of the two generations whose objects have survived no collection of ours."""
OLDEST: Final = 2
NEVER: Final = 2**31 - 1
"""Collections after which Python itself makes a full one."""


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Have Python itself collect garbage rarely, and all of it never, while inside.

    If the process has frozen objects before, those of start-up stay frozen as well: Python
    cannot tell them apart, and would visit all of them in each full collection from then on.
    What is garbage by then stays, too: it is some thousand small objects, and to look for
    them takes some 30 ms.
    """
    before, was_frozen = gc.get_threshold(), gc.get_freeze_count() > 0
    gc.freeze()  # objects from start-up stay
    gc.set_threshold(GC_YOUNG_OBJECTS, before[1], NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not was_frozen:
            gc.unfreeze()


class GarbageCollector(trio.abc.Instrument):
    """Collector of garbage by the processor time that the event loop has used.

    Args:
        clock: seconds of processor time.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._collected_at = self._fully_collected_at = clock()

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect after passes of the event loop while inside."""
        trio.lowlevel.add_instrument(self)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(self)

    async def run(self) -> None:
        """Collect what is young in an idle loop as well, until cancelled."""
        while True:
            await trio.sleep(GC_INTERVAL_S)
            gc.collect(YOUNG)

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002  # called by trio
        """Collect at the end of a pass, if that is due."""
        now = self._clock()
        if now - self._collected_at < GC_YOUNG_S:
            return
        if now - self._fully_collected_at < GC_FULL_S:
            gc.collect(YOUNG)
        else:
            gc.collect(OLDEST)
            self._fully_collected_at = now
        self._collected_at = self._clock()
