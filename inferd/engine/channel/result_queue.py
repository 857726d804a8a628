"""The queue of one job's results.

Bounds:
    Unbounded here: the validator bounds the bytes that a worker may send for a job, and the
        reader of the worker's socket must never wait for a slow client.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import trio

from inferd.engine.one_shot_cancel import OneShotCancel

T = TypeVar("T")


class ResultQueue(Generic[T]):
    """A queue from which one task takes all items at once.

    The task takes them itself (``get_all``), or has a function called with them in the task
    that puts them (``pass_to``), which costs no pass of the event loop.
    """

    def __init__(self) -> None:
        self._items: list[T] = []
        self._failure: Exception | None = None
        self._wake = trio.Event()
        self._finished = OneShotCancel()
        self._take: Callable[[list[T]], bool] | None = None
        self._take_error: Exception | None = None

    def put(self, item: T) -> None:
        """Add an item, and wake the task that waits for items."""
        self._items.append(item)
        self._wake.set()

    def add(self, item: T) -> bool:
        """Add an item; return whether ``hand_over`` has to be called, after other items.

        If not, a task waits for items and was woken, or will look for them.
        """
        self._items.append(item)
        if self._take is None:
            self._wake.set()
            return False
        return len(self._items) == 1

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

    def hand_over(self) -> None:
        """Call the function of ``pass_to``, if there is one, with the items that were added.

        What it raises, the task that waits in ``pass_to`` does.
        """
        if self._take is None or not self._items:
            return
        items, self._items = self._items, []
        try:
            takes_more = self._take(items)
        except Exception as error:  # noqa: BLE001  # the fault of one job alone
            self._take_error, takes_more = error, False
        if not takes_more:
            self._take = None
            self._wake.set()

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
        if self._failure is None:
            self._wake = trio.Event()
        return self._all()

    async def pass_to(self, take: Callable[[list[T]], bool]) -> None:
        """Have a function called with all items, in order, until it returns false.

        It is called in this task for items that there are, and then by ``hand_over``.

        Args:
            take: does not wait; told no items after it has returned false or raised.

        Raises:
            Exception: of ``take``; or the one that ``fail`` was given, once the items are
                taken.

        Cancellation: loses nothing; ``take`` is not called afterwards.
        """
        while not self._items or take(self._all()):
            if self._failure is not None and not self._items:
                raise self._failure
            self._wake, self._take = trio.Event(), take
            try:
                await self._wake.wait()
            finally:
                is_over, self._take = self._take is None, None
            if self._take_error is not None:
                error, self._take_error = self._take_error, None
                raise error
            if is_over:
                return

    def _all(self) -> list[T]:
        items, self._items = self._items, []
        return items
