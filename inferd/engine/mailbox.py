"""What a worker said of one job, until somebody takes it.

Bounds:
    A job's pieces are no more than its context has tokens, so the box is not bounded
    again: the reader of the worker's pipe never waits for a slow client.
"""

from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Many items in, taken all at once by one task."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._failure: Exception | None = None
        self._wake = trio.Event()

    def put(self, item: T) -> None:
        """Add an item."""
        self._items.append(item)
        self._wake.set()

    def fail(self, failure: Exception) -> None:
        """Have ``take`` raise, once the items are taken."""
        self._failure = failure
        self._wake.set()

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
