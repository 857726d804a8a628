"""Limiter that shares a number of permits fairly among users."""

from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

import trio


class _Waiter:
    def __init__(self, user: Hashable) -> None:
        self.user = user
        self.granted = trio.Event()


class FairLimiter:
    """Limiter of concurrent operations, such as decoding large lines.

    The next permit goes to the user with the fewest, and among these to the one who has
    waited longest since it began to wait or was last served. One user has all permits but
    one at most, unless there is only one.

    Args:
        limit: permits at once. It may change at any time; permits over a lower limit stay.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._active: Counter[Hashable] = Counter()
        self._waiting: dict[_Waiter, None] = {}

    @property
    def n_active(self) -> int:
        """Permits in use."""
        return self._active.total()

    def would_wait(self, user: Hashable) -> bool:
        """Tell whether a user who asks for a permit now waits for somebody to return one."""
        has_most = self._active[user] >= self._max_of_user
        return bool(self._waiting) or self.n_active >= self.limit or has_most

    @property
    def _max_of_user(self) -> int:
        return max(1, self.limit - 1)

    @asynccontextmanager
    async def acquire(self, user: Hashable) -> AsyncIterator[None]:
        """Wait for a permit, and hold it while inside.

        Cancellation: returns the permit, or leaves the queue.
        """
        waiter = _Waiter(user)
        self._waiting[waiter] = None
        self._grant()
        try:
            await waiter.granted.wait()
            yield
        finally:
            if waiter in self._waiting:
                del self._waiting[waiter]
            else:
                self._active[user] -= 1
                if not self._active[user]:
                    del self._active[user]
            self._grant()

    def _grant(self) -> None:
        while self.n_active < self.limit:
            most = self._max_of_user
            eligible = [
                each for each in self._waiting if self._active[each.user] < most
            ]
            if not eligible:
                return
            chosen = min(eligible, key=lambda each: self._active[each.user])
            del self._waiting[chosen]
            self._move_behind_others(chosen.user)
            self._active[chosen.user] += 1
            chosen.granted.set()

    def _move_behind_others(self, user: Hashable) -> None:
        """Move a served user's waiters behind those of other users."""
        for waiter in [each for each in self._waiting if each.user == user]:
            self._waiting[waiter] = self._waiting.pop(waiter)
