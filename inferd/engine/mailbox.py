"""What a worker said of one job, until somebody takes it.

Bounds:
    A job's pieces are no more than its context has tokens, so the box is not bounded
    again: the reader of the worker's pipe never waits for a slow client.
"""

from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import trio

from inferd.engine.cue import Cue

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Many items in, taken all at once by one task."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._failure: Exception | None = None
        self._wake = trio.Event()
        self._over = Cue()

    def put(self, item: T) -> None:
        """Add an item."""
        self._items.append(item)
        self._wake.set()

    @property
    def last(self) -> T | None:
        """The last item that nobody has taken yet."""
        return self._items[-1] if self._items else None

    def put_over(self, item: T) -> None:
        """Put an item in the place of the last, which nobody has taken yet."""
        self._items[-1] = item

    def put_last(self, item: T) -> None:
        """Add the last item that there is to be."""
        self.put(item)
        self._over.come()

    def fail(self, failure: Exception) -> None:
        """Have ``take`` raise, once the items are taken."""
        self._failure = failure
        self._wake.set()
        self._over.come()

    def until_over(self) -> AbstractContextManager[None]:
        """Cut short what is inside once the last item is there, or the failure."""
        return self._over.until_come()

    async def take(self) -> list[T]:
        """Wait until there is something; give all of it, in order.

        Raises:
            Exception: what ``fail`` was given.

        Cancellation: loses nothing.
        """
        await self._wake.wait()
        if not self._items and self._failure is not None:
            raise self._failure
        items, self._items = self._items, []
        if self._failure is None:
            self._wake = trio.Event()
        return items
