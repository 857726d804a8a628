"""Do several things at once, and have their results in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

JOBS_MAX: Final = 64
"""Requests of one command at once: a daemon runs fewer, and queues the others."""
READ_AHEAD: Final = 2
"""Items that are taken for each job: one that runs and one that is next."""


def in_order(
    function: Callable[[T], R],
    items: Iterable[T],
    n_jobs: int,
    interrupt: Callable[[], object],
) -> Iterator[R]:
    """Yield what a function returns for each item, in their order.

    Args:
        function: called in threads, for ``n_jobs`` items at once; with one job in this one.
        items: with several jobs, ``READ_AHEAD`` for each are taken before the first result.
        n_jobs: threads.
        interrupt: makes running calls end; called if this ends before all are done.

    Raises:
        Exception: what ``function`` or ``items`` raised, after the results before it.
    """
    if n_jobs == 1:
        yield from map(function, items)
        return
    waiting = deque[Future[R]]()
    errors: list[Exception] = []
    with ThreadPoolExecutor(n_jobs) as threads:
        try:
            for item in _until_error(items, errors):
                waiting.append(threads.submit(function, item))
                if len(waiting) == READ_AHEAD * n_jobs:
                    yield waiting[0].result()
                    waiting.popleft()
            while waiting:
                yield waiting[0].result()
                waiting.popleft()
        finally:
            for each in waiting:
                each.cancel()
            if waiting:
                interrupt()
    for error in errors:
        raise error


def _until_error(items: Iterable[T], errors: list[Exception]) -> Iterator[T]:
    """Yield items; an error in their place is noted, and ends them."""
    try:
        yield from items
    except Exception as error:  # noqa: BLE001  # raised after what came before
        errors.append(error)
