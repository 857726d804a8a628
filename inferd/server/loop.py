"""The event loop is shared out to users: work for them waits for its turn.

Every task of a connection asks ``turn`` before it reads, decodes or answers. As long as the
pass of the event loop has time left and nobody waits, it goes on at once. Otherwise it waits,
and a few of those who wait are woken in each pass: so a pass is short, whatever one user does
with all its connections, and work of others comes in between.

What each task takes is measured around its steps, and charged to the user it works for.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import trio
from trio.lowlevel import Abort, Task

from inferd.server.closing import INTERRUPTED
from inferd.server.limits import (
    COLLECT_S,
    FULL_COLLECTION_PART,
    PASS_S,
    TURNS_A_PASS,
    YOUNG_OBJECTS,
)
from inferd.server.shares import Shares

OWNER: Final[ContextVar[int | None]] = ContextVar("OWNER", default=None)
"""For whom a task works; its children work for the same. Nobody waits who has none."""

Work = Task | Callable[[], None]


@contextmanager
def rare_collections() -> Iterator[None]:
    """Have Python look for cycles seldom while inside: nothing else is done meanwhile.

    A collection takes a tenth of a microsecond and more for each object that it looks at.
    One of the young looks at all that are new since the last, and they are not only as many
    as its threshold says: that counts what was made less what was freed. With a thousand
    connections a full one takes 60 to 100 ms. The daemon leaves few cycles.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()  # what is there from the start stays
    gc.set_threshold(YOUNG_OBJECTS, before[1], before[2] * FULL_COLLECTION_PART)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def collect_young() -> None:
    """Look for cycles among what is new every ``COLLECT_S`` seconds, until cancelled."""
    while True:
        await trio.sleep(COLLECT_S)
        gc.collect(1)


class Loop(trio.abc.Instrument):
    """Gives turns to users, a bounded time in each pass.

    Args:
        clock: seconds of processor time.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._shares: Shares[Work] = Shares()
        self._news = trio.Event()
        self._began = 0.0
        self._spent_s = 0.0
        self._served: set[int] = set()
        self._n_pieces = 0

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure all tasks while inside; without it nobody ever waits for a turn.

        What the kernel closes for a client meanwhile is interrupted.
        """
        trio.lowlevel.add_instrument(self)
        try:
            with INTERRUPTED.on():
                yield
        finally:
            trio.lowlevel.remove_instrument(self)

    async def run(self) -> None:
        """Wake those who wait, in turns, until cancelled."""
        while True:
            await self._news.wait()
            self._news = trio.Event()
            while self._shares:
                self._wake_some()
                await trio.lowlevel.checkpoint()

    async def turn(self) -> None:
        """Wait until it is the turn of the user for whom the calling task works.

        Cancellation: safe. It is no checkpoint where nothing has to be waited for.
        """
        owner = OWNER.get()
        if owner is None or self._may_go_on(owner):
            return
        task = trio.lowlevel.current_task()
        self._shares.put(owner, task)
        while True:
            await self._wait(owner, task)
            if not self._is_over:
                break
            self._shares.put_back(owner, task)
        self._begin(owner)

    def later(self, owner: int, work: Callable[[], None]) -> None:
        """Call something when it is a user's turn, perhaps at once.

        Args:
            owner: the user.
            work: does not raise.
        """
        if self._may_go_on(owner):
            self._call(owner, work)
        else:
            self._shares.put(owner, work)
            self._news.set()

    # --- turns --------------------------------------------------------------------

    @property
    def _is_over(self) -> bool:
        """Whether this pass has no more time for those who wait; one piece it always has."""
        return self._spent_s >= PASS_S and self._n_pieces > 0

    def _may_go_on(self, owner: int) -> bool:
        """Begin a piece of work at once, if it would be next anyway."""
        if not self._shares.is_next(owner):
            return False
        if self._spent_s >= PASS_S and owner in self._served:
            return False
        self._shares.serve(owner)
        self._begin(owner)
        return True

    def _begin(self, owner: int) -> None:
        self._served.add(owner)
        self._n_pieces += 1

    async def _wait(self, owner: int, task: Task) -> None:
        def abort(_: object) -> Abort:
            self._shares.remove(owner, task)
            return Abort.SUCCEEDED

        self._news.set()
        await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake_some(self) -> None:
        for _ in range(TURNS_A_PASS):
            if self._is_over or (taken := self._shares.take()) is None:
                return
            owner, work = taken
            if isinstance(work, Task):
                trio.lowlevel.reschedule(work)
            else:
                self._begin(owner)
                self._call(owner, work)

    def _call(self, owner: int, work: Callable[[], None]) -> None:
        began = self._clock()
        work()
        self._charge(owner, self._clock() - began)

    def _charge(self, owner: int, seconds: float) -> None:
        self._spent_s += seconds
        self._shares.charge(owner, seconds)

    # --- Instrument: called by trio -------------------------------------------------

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002
        """Begin another pass."""
        self._spent_s = 0.0
        self._n_pieces = 0
        self._served.clear()

    def before_task_step(self, task: Task) -> None:  # noqa: ARG002
        """Begin to measure a task."""
        self._began = self._clock()

    def after_task_step(self, task: Task) -> None:
        """Charge a task's step to the user for whom it is done."""
        owner = task.context.get(OWNER)
        if owner is not None:
            self._charge(owner, self._clock() - self._began)
