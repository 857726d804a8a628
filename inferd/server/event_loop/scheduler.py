"""Share the event loop's time fairly among users.

A connection's task awaits ``turn`` before it reads, decodes or answers. While the current
pass of the event loop has time left and no other user waits, it goes on at once. Otherwise
it waits, and some of the waiting tasks are woken in each pass. So passes stay short,
however many connections one user has, and other users' tasks run in between.

The time of each step of a task is measured and charged to the task's user.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

import trio
from trio.lowlevel import Abort, Task

from inferd.limits.server import (
    LOOP_PASS_S,
    TASKS_PER_PASS,
)
from inferd.server.event_loop.work_queue import WorkQueue
from inferd.server.fd_passing.close import SYSCALL_TIMER

TASK_USER: Final[ContextVar[int | None]] = ContextVar("TASK_USER", default=None)
"""The user for whom a task and its children run. Tasks without one never wait."""

Work = Task | Callable[[], None]
T = TypeVar("T")
R = TypeVar("R")


class LoopScheduler(trio.abc.Instrument):
    """Scheduler that gives users turns on the event loop, for a bounded time in each pass.

    Args:
        clock: seconds of processor time.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._queue: WorkQueue[Work] = WorkQueue()
        self._work_added = trio.Event()
        self._began = 0.0
        self._spent_s = 0.0
        self._served: set[int] = set()
        self._n_tasks = 0
        self._is_measuring = False
        self._running: Task | None = None

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Measure all tasks while inside; without it no task ever waits for its turn.

        Descriptors that the kernel closes for a client meanwhile cannot block for long.
        """
        trio.lowlevel.add_instrument(self)
        self._is_measuring = True
        try:
            with SYSCALL_TIMER.enabled():
                yield
        finally:
            self._is_measuring = False
            trio.lowlevel.remove_instrument(self)

    async def run(self) -> None:
        """Wake waiting tasks in their turns, until cancelled."""
        while True:
            await self._work_added.wait()
            self._work_added = trio.Event()
            while self._queue:
                self._wake_batch()
                await trio.lowlevel.checkpoint()

    async def turn(self) -> None:
        """Wait for the turn of the user for whom the calling task runs.

        Cancellation: safe. It is no checkpoint where it does not wait.
        """
        user = TASK_USER.get()
        if user is None or self._try_begin(user):
            return
        task = trio.lowlevel.current_task()
        self._queue.put(user, task)
        await self._wait(user, task)
        await self.begin()

    async def begin(self) -> None:
        """Begin a task that was woken or started in its user's turn.

        It waits, before the user's other work, while the pass has no time left for this
        user: others that were woken in the same turns have used it.

        Cancellation: safe. It is no checkpoint where it does not wait.
        """
        user = TASK_USER.get()
        if user is None:
            return
        task = trio.lowlevel.current_task()
        while self._must_wait(user):
            self._queue.put_back(user, task)
            await self._wait(user, task)
        self._begin(user)

    def call_later(self, user: int, work: Callable[[], None]) -> None:
        """Call a function in a user's turn, perhaps at once.

        Args:
            user: who is charged for it.
            work: does not raise.
        """
        if self._try_begin(user):
            self._call(user, work)
        else:
            self._queue.put(user, work)
            self._work_added.set()

    def charged(self, work: Callable[[T], R]) -> Callable[[T], R]:
        """Make a function whose time is charged to the calling task's user in any other task.

        It may be called in no task, too. What the calling task itself does is measured anyway.
        """
        user, own_task = TASK_USER.get(), trio.lowlevel.current_task()
        if user is None:
            return work

        def do(argument: T) -> R:
            if self._running is own_task or not self._is_measuring:
                return work(argument)
            began = self._clock()
            try:
                return work(argument)
            finally:
                self._charge(user, self._clock() - began)

        return do

    # --- scheduling ---------------------------------------------------------------

    @property
    def _is_pass_over(self) -> bool:
        """Whether this pass has no time left for waiting tasks, after at least one."""
        return self._spent_s >= LOOP_PASS_S and self._n_tasks > 0

    def _must_wait(self, user: int) -> bool:
        """Whether the waiting tasks of a user have to wait for another pass.

        Once the pass has no time left, the user with the least time still has one turn in
        it: tasks that ask for none, such as cancelled ones, may have used up each pass.
        """
        if not self._is_pass_over:
            return False
        return user in self._served or not self._queue.has_least(user)

    def _try_begin(self, user: int) -> bool:
        """Begin a task at once, if it would be next anyway."""
        if not self._queue.is_next(user):
            return False
        if self._spent_s >= LOOP_PASS_S and user in self._served:
            return False
        self._queue.serve(user)
        self._begin(user)
        return True

    def _begin(self, user: int) -> None:
        self._served.add(user)
        self._n_tasks += 1

    async def _wait(self, user: int, task: Task) -> None:
        def abort(_: object) -> Abort:
            self._queue.remove(user, task)
            return Abort.SUCCEEDED

        self._work_added.set()
        await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake_batch(self) -> None:
        for _ in range(TASKS_PER_PASS):
            if (entry := self._take()) is None:
                return
            user, work = entry
            if isinstance(work, Task):
                trio.lowlevel.reschedule(work)
            else:
                self._begin(user)
                self._call(user, work)

    def _take(self) -> tuple[int, Work] | None:
        """Take the next unit of work, if it may be begun or woken in this pass."""
        first = self._queue.first()
        if first is None or self._must_wait(first):
            return None
        return self._queue.take()

    def _call(self, user: int, work: Callable[[], None]) -> None:
        began = self._clock()
        work()
        self._charge(user, self._clock() - began)

    def _charge(self, user: int, seconds: float) -> None:
        self._spent_s += seconds
        self._queue.charge(user, seconds)

    # --- Instrument: called by trio -------------------------------------------------

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002
        """Begin a new pass."""
        self._spent_s = 0.0
        self._n_tasks = 0
        self._served.clear()

    def before_task_step(self, task: Task) -> None:
        """Start measuring a step."""
        self._running = task
        self._began = self._clock()

    def after_task_step(self, task: Task) -> None:
        """Charge the step to the task's user."""
        self._running = None
        user = task.context.get(TASK_USER)
        if user is not None:
            self._charge(user, self._clock() - self._began)
