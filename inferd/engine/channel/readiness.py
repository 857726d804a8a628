"""Call a function whenever a descriptor is readable, inside trio's own wait for events.

To wake a task for each message of a worker takes a pass of trio's loop: four system calls and
some 700 of Python's instructions, more than the message itself takes. So the epoll object of
trio's run is replaced by one that calls functions for some descriptors and waits on, unless
they have given trio something to do. If trio is not built as this module expects, a task
waits for the descriptor as usual.
"""

import os
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import trio

PollEvent = tuple[int, int]
"""A descriptor and what has become of it."""


async def call_when_readable(fd: int, call: Callable[[], bool]) -> None:
    """Call a function whenever a descriptor is readable, until it returns false.

    Args:
        fd: stays open meanwhile. Tasks may wait for it, too.
        call: does not wait. It runs in this task or in none.

    Raises:
        Exception: what ``call`` raised.

    Cancellation: ``call`` is not called afterwards.
    """
    epoll = calling_epoll()
    if epoll is None:
        await _call_in_task(fd, call)
    else:
        await epoll.call_until_over(fd, call)


async def _call_in_task(fd: int, call: Callable[[], bool]) -> None:
    await trio.lowlevel.wait_readable(fd)
    while call():
        await trio.lowlevel.wait_readable(fd)


class CallingEpoll:
    """Epoll object that calls functions for some descriptors and returns the others' events.

    Args:
        epoll: of a run of trio.
        to_run: the tasks that the run would go on with.
        next_deadline: returns the moment until which the run would wait.
    """

    def __init__(
        self,
        epoll: select.epoll,
        to_run: Sequence[object],
        next_deadline: Callable[[], float],
    ) -> None:
        self._epoll = epoll
        self._to_run = to_run
        self._next_deadline = next_deadline
        self._calls: dict[int, Callable[[], None]] = {}
        self.register, self.modify = epoll.register, epoll.modify
        self.unregister, self.close = epoll.unregister, epoll.close

    async def call_until_over(self, fd: int, call: Callable[[], bool]) -> None:
        """Call a function whenever a descriptor is readable; see ``call_when_readable``."""
        over = trio.Event()
        errors: list[Exception] = []

        def do() -> None:
            try:
                if call():
                    return
            except Exception as error:  # noqa: BLE001  # the waiting task raises it
                errors.append(error)
            self._remove(own)
            over.set()

        with self._calling(fd, do) as own:
            await over.wait()
        for error in errors:
            raise error

    def poll(self, timeout: float, maxevents: int) -> list[PollEvent]:
        """Wait for events of other descriptors, as long as the run has nothing else to do."""
        calls = self._calls
        if not calls:
            return self._epoll.poll(timeout, maxevents)
        ends_at = time.monotonic() + timeout
        deadline = self._next_deadline()
        while True:
            others: list[PollEvent] = []
            events = self._epoll.poll(timeout, maxevents + len(calls))
            for event in events:
                if (do := calls.get(event[0])) is None:
                    others.append(event)
                else:
                    do()
            timeout = ends_at - time.monotonic()
            is_over = timeout <= 0 or not events or self._next_deadline() != deadline
            if others or is_over or self._to_run:
                return others

    @contextmanager
    def _calling(self, fd: int, do: Callable[[], None]) -> Iterator[int]:
        """Register a descriptor of its own: trio replaces its events of one that tasks wait for.

        A task that waits until it may send registers the same socket, and would end our
        registration.
        """
        own = os.dup(fd)
        self._calls[own] = do
        try:
            self._epoll.register(own, select.EPOLLIN)
            yield own
        finally:
            self._remove(own)
            os.close(own)

    def _remove(self, fd: int) -> None:
        if self._calls.pop(fd, None) is not None:
            self._epoll.unregister(fd)


def calling_epoll() -> CallingEpoll | None:
    """Return the epoll object of the present run of trio, after it has been replaced.

    ``None`` if the run has none, or not where it is looked for.
    """
    try:
        # No public function leads there. The range of trio's versions is open, so that another
        # one may be without these attributes.
        runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner  # noqa: SLF001
        manager = runner.io_manager
        epoll: object = manager._epoll  # noqa: SLF001
        to_run, next_deadline = runner.runq, runner.deadlines.next_deadline
    except AttributeError:
        return None
    if isinstance(epoll, select.epoll):
        epoll = CallingEpoll(epoll, to_run, next_deadline)
        manager._epoll = epoll  # type: ignore[assignment]  # noqa: SLF001
    return epoll if isinstance(epoll, CallingEpoll) else None
