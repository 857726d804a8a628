"""Large lines are read a few at a time, so that many of them do not fill the memory."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class _Waiter:
    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.may_go = trio.Event()


class LargeLines:
    """Turns to read a line that is no small one.

    The next turn goes to the user who has the fewest, among equals to the one who has
    waited for longest since it came or was served last; a single user has all turns but
    one at most, unless there is only one.

    Args:
        n_turns: at once; may change at any time, and who has a turn keeps it.
    """

    def __init__(self, n_turns: int) -> None:
        self.n_turns = n_turns
        self._reading: Counter[int] = Counter()
        self._waiting: dict[_Waiter, None] = {}

    @property
    def n_reading(self) -> int:
        """Turns that are had."""
        return self._reading.total()

    @asynccontextmanager
    async def turn(self, uid: int) -> AsyncIterator[None]:
        """Wait for a turn, and have it while inside.

        Cancellation: gives the turn, or the place in the line, back.
        """
        waiter = _Waiter(uid)
        self._waiting[waiter] = None
        self._grant()
        try:
            await waiter.may_go.wait()
            yield
        finally:
            if waiter in self._waiting:
                del self._waiting[waiter]
            else:
                self._reading[uid] -= 1
                if not self._reading[uid]:
                    del self._reading[uid]
            self._grant()

    def _grant(self) -> None:
        while self.n_reading < self.n_turns:
            most = max(1, self.n_turns - 1)
            able = [each for each in self._waiting if self._reading[each.uid] < most]
            if not able:
                return
            following = min(able, key=lambda each: self._reading[each.uid])
            del self._waiting[following]
            self._put_behind(following.uid)
            self._reading[following.uid] += 1
            following.may_go.set()

    def _put_behind(self, uid: int) -> None:
        """Have others who wait come before those of a user who is served."""
        for waiter in [each for each in self._waiting if each.uid == uid]:
            self._waiting[waiter] = self._waiting.pop(waiter)
