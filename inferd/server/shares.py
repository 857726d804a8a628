"""Whose work comes next on the event loop: that of the user who has had least time of it.

This is start-time fair queueing. Each user has a figure, the seconds of work that were done
for it; who waits with the smallest is next. A user who comes back begins where those who
wait are now, less a small credit, and so can neither save up time nor be made to pay for
the time when it was alone.
"""

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from inferd.server.limits import LEAST_CHARGE_S, MAX_USERS_REMEMBERED, SHARE_CREDIT_S

W = TypeVar("W", bound=Hashable)


class Shares(Generic[W]):
    """Pieces of work that wait, by user.

    Laws (held by property tests):

    - What is taken belongs to a user who waits and has had least.
    - Of two users who both wait all the time, neither gets more than the other by more than
      the credit and the largest piece of either.
    - The pieces of one user are taken in the order in which they were put.

    Cost: O(log n) for each call, n users.

    Bounds:
        Remembers ``MAX_USERS_REMEMBERED`` users besides those who wait.
    """

    def __init__(self) -> None:
        self._had: dict[int, float] = {}
        self._waiting: dict[int, OrderedDict[W, None]] = {}
        self._heap: list[tuple[float, int]] = []  # by what they have had, or had once
        self._in_heap: set[int] = set()
        self._now = 0.0

    def __len__(self) -> int:
        """Count the users who wait."""
        return len(self._waiting)

    def is_next(self, user: int) -> bool:
        """Tell whether a user who does not wait would be next if it did."""
        if user in self._waiting:
            return False
        first = self._first()
        return first is None or self._entry(user) <= self._had[first]

    def put(self, user: int, work: W) -> None:
        """Have a piece of work wait behind the others of its user."""
        self._line(user)[work] = None

    def put_back(self, user: int, work: W) -> None:
        """Have a piece of work wait that was taken, before the others of its user."""
        line = self._line(user)
        line[work] = None
        line.move_to_end(work, last=False)

    def remove(self, user: int, work: W) -> None:
        """Have a piece of work wait no more; nothing happens if it does not."""
        line = self._waiting.get(user)
        if line is not None:
            line.pop(work, None)
            if not line:
                del self._waiting[user]

    def take(self) -> tuple[int, W] | None:
        """Take out the piece of work that is next, and charge the least for it."""
        user = self._first()
        if user is None:
            return None
        line = self._waiting[user]
        work, _ = line.popitem(last=False)
        if not line:
            del self._waiting[user]
        self.serve(user)
        return user, work

    def serve(self, user: int) -> None:
        """Note that a piece of work of a user begins, one who is next."""
        self._had[user] = self._entry(user)
        self._now = max(self._now, self._had[user])
        self.charge(user, LEAST_CHARGE_S)

    def charge(self, user: int, seconds: float) -> None:
        """Note what was done for a user."""
        self._had[user] = self._entry(user) + seconds
        if len(self._had) > MAX_USERS_REMEMBERED + len(self._waiting):
            self._forget()

    def _entry(self, user: int) -> float:
        """Tell what a user has had, as it counts now."""
        oldest = self._now - SHARE_CREDIT_S
        return max(self._had.get(user, oldest), oldest)

    def _line(self, user: int) -> OrderedDict[W, None]:
        line = self._waiting.get(user)
        if line is None:
            line = self._waiting[user] = OrderedDict()
            self._had[user] = self._entry(user)
            if user not in self._in_heap:
                self._in_heap.add(user)
                heapq.heappush(self._heap, (self._had[user], user))
        return line

    def _first(self) -> int | None:
        """Find the user who waits and has had least."""
        while self._heap:
            had, user = self._heap[0]
            if user not in self._waiting:
                heapq.heappop(self._heap)
                self._in_heap.discard(user)
            elif had < self._had[user]:
                heapq.heapreplace(self._heap, (self._had[user], user))
            else:
                return user
        return None

    def _forget(self) -> None:
        """Forget those who count as if they had never been here, else the idlest half."""
        idle = [user for user in self._had if user not in self._waiting]
        idle.sort(key=self._had.__getitem__)
        for user in idle[: len(idle) // 2 + 1]:
            del self._had[user]
