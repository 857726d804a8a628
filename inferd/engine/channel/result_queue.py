"""The queue of one job's results.

Bounds:
    Unbounded here: the validator bounds the bytes that a worker may send for a job, and the
        reader of the worker's socket must never wait for a slow client.
"""

from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import trio

from inferd.engine.one_shot_cancel import OneShotCancel

T = TypeVar("T")


class ResultQueue(Generic[T]):
    """A queue from which one task takes all items at once."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._failure: Exception | None = None
        self._wake = trio.Event()
        self._finished = OneShotCancel()

    def put(self, item: T) -> None:
        """Add an item."""
        self._items.append(item)
        self._wake.set()

    @property
    def last(self) -> T | None:
        """The last item, if it was not taken yet."""
        return self._items[-1] if self._items else None

    def replace_last(self, item: T) -> None:
        """Replace the last item, which was not taken yet."""
        self._items[-1] = item

    def put_final(self, item: T) -> None:
        """Add the final item."""
        self.put(item)
        self._finished.fire()

    def fail(self, failure: Exception) -> None:
        """Have ``get_all`` raise, once the items are taken."""
        self._failure = failure
        self._wake.set()
        self._finished.fire()

    def until_over(self) -> AbstractContextManager[None]:
        """Return a context that cancels its body after the final item or the failure."""
        return self._finished.until_fired()

    async def get_all(self) -> list[T]:
        """Wait until there are items; return all of them, in order.

        Raises:
            Exception: the one that ``fail`` was given.

        Cancellation: loses nothing.
        """
        await self._wake.wait()
        if not self._items and self._failure is not None:
            raise self._failure
        items, self._items = self._items, []
        if self._failure is None:
            self._wake = trio.Event()
        return items
