"""Start-time fair queue of work on the event loop: the user with the least time is next.

Each user has a tag, the seconds of work that were charged to it; the smallest tag among
waiting users is next. A user that returns starts from the present virtual time less a small
credit. So idle time cannot be saved up, and the time when a user was alone is not held
against it.
"""

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from inferd.limits.server import (
    FAIR_SHARE_CREDIT_S,
    MAX_FAIR_SHARE_USERS,
    MIN_TASK_CHARGE_S,
)

W = TypeVar("W", bound=Hashable)


class UserQueue(Generic[W]):
    """Queue of one user's units: those that were put back come first, in order."""

    def __init__(self) -> None:
        self._put_back: OrderedDict[W, None] = OrderedDict()
        self._waiting: OrderedDict[W, None] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether a unit waits."""
        return bool(self._put_back or self._waiting)

    def put(self, work: W) -> None:
        """Queue a unit behind all others."""
        self._waiting[work] = None

    def put_back(self, work: W) -> None:
        """Queue a unit that was taken, before those that were not."""
        self._put_back[work] = None

    def remove(self, work: W) -> None:
        """Remove a unit, if it is queued."""
        self._put_back.pop(work, None)
        self._waiting.pop(work, None)

    def take(self) -> W:
        """Take the first unit; there is one."""
        work, _ = (self._put_back or self._waiting).popitem(last=False)
        return work


class WorkQueue(Generic[W]):
    """Queue of units of work, by user.

    Laws (held by property tests):

    - The unit that is taken belongs to a waiting user with the least time.
    - Of two users who both always wait, neither gets more time than the other by more than
      the credit and the largest unit of either.
    - The units of one user are taken in order, those that were put back before the others.

    Cost: O(log n) for each call, n users.

    Bounds:
        Remembers ``MAX_FAIR_SHARE_USERS`` users besides waiting ones.
    """

    def __init__(self) -> None:
        self._used_s: dict[int, float] = {}
        self._waiting: dict[int, UserQueue[W]] = {}
        self._heap: list[tuple[float, int]] = []  # by time, possibly outdated
        self._in_heap: set[int] = set()
        self._virtual_time_s = 0.0

    def __len__(self) -> int:
        """Count the waiting users."""
        return len(self._waiting)

    def is_next(self, user: int) -> bool:
        """Tell whether a user who does not wait would be next if it did."""
        return user not in self._waiting and self.has_least(user)

    def has_least(self, user: int) -> bool:
        """Tell whether no waiting user has less time than this one."""
        first = self.first()
        return first is None or self._used_by(user) <= self._used_s[first]

    def put(self, user: int, work: W) -> None:
        """Queue a unit of work behind the others of its user."""
        self._queue_of(user).put(work)

    def put_back(self, user: int, work: W) -> None:
        """Queue a unit that was taken, before those of its user that were not."""
        self._queue_of(user).put_back(work)

    def remove(self, user: int, work: W) -> None:
        """Remove a unit of work, if it is queued."""
        queue = self._waiting.get(user)
        if queue is not None:
            queue.remove(work)
            if not queue:
                del self._waiting[user]

    def take(self) -> tuple[int, W] | None:
        """Take the next unit, and charge the minimum for it."""
        user = self.first()
        if user is None:
            return None
        queue = self._waiting[user]
        work = queue.take()
        if not queue:
            del self._waiting[user]
        self.serve(user)
        return user, work

    def serve(self, user: int) -> None:
        """Note that a unit of a user begins; the user is next."""
        self._used_s[user] = self._used_by(user)
        self._virtual_time_s = max(self._virtual_time_s, self._used_s[user])
        self.charge(user, MIN_TASK_CHARGE_S)

    def charge(self, user: int, seconds: float) -> None:
        """Charge time to a user."""
        self._used_s[user] = self._used_by(user) + seconds
        if len(self._used_s) > MAX_FAIR_SHARE_USERS + len(self._waiting):
            self._forget()

    def _used_by(self, user: int) -> float:
        """Return the time charged to a user, at least the virtual time minus the credit.

        The credit is ``FAIR_SHARE_CREDIT_S``.
        """
        oldest = self._virtual_time_s - FAIR_SHARE_CREDIT_S
        return max(self._used_s.get(user, oldest), oldest)

    def _queue_of(self, user: int) -> UserQueue[W]:
        queue = self._waiting.get(user)
        if queue is None:
            queue = self._waiting[user] = UserQueue()
            self._used_s[user] = self._used_by(user)
            if user not in self._in_heap:
                self._in_heap.add(user)
                heapq.heappush(self._heap, (self._used_s[user], user))
        return queue

    def first(self) -> int | None:
        """Find the waiting user with the least time."""
        while self._heap:
            used_s, user = self._heap[0]
            if user not in self._waiting:
                heapq.heappop(self._heap)
                self._in_heap.discard(user)
            elif used_s < self._used_s[user]:
                heapq.heapreplace(self._heap, (self._used_s[user], user))
            else:
                return user
        return None

    def _forget(self) -> None:
        """Forget the half of the idle users with the least time.

        Most of them would start from the present virtual time anyway.
        """
        idle = [user for user in self._used_s if user not in self._waiting]
        idle.sort(key=self._used_s.__getitem__)
        for user in idle[: len(idle) // 2 + 1]:
            del self._used_s[user]
