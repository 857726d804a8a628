"""Fair queue: users are served round-robin, each has its principals served so, in turn.

The user with the fewest permits for its weight is first: all have the weight 1, but a gateway
has a larger one while several of its principals wait or run. Users with equally many are served
in turn, each as many times as its weight says: a user who begins to wait goes last, and one whose
turn is over goes last again. Of a user's principals the one with the fewest permits is first, and
those with equally many are served in turn. Within a principal's queue the highest priority is
first, and the earliest among equals.
"""

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple, TypeVar

from inferd.admission.shares import CallerCounts, Shares
from inferd.backend.caller import Caller

__all__ = ["FairQueue", "QueueEntry"]

K = TypeVar("K")
V = TypeVar("V")


class QueueEntry(NamedTuple):
    """A waiting request; entries of one caller sort in the order of service."""

    rank: int
    """The negative of the priority."""
    arrival: int
    """Number of requests that arrived before."""
    ticket: int


class FairQueue:
    """Round-robin queue of waiting requests by user, and by the principals of each.

    It counts permits as well: ``begin`` and ``end`` are called for each.

    Cost: ``put`` and ``remove`` take O(log n) comparisons, ``take`` at most one step per caller,
    and ``order`` one step per request.

    Args:
        max_weight: of a user; may change at any time.
    """

    def __init__(self, max_weight: int = 1) -> None:
        self.shares = Shares(max_weight=max_weight)
        """Of those who wait or have permits; for others to read."""
        self._permits = CallerCounts()
        self._users: dict[int, _UserQueue] = {}  # in the order of turns
        self._served: Caller | None = None
        self._is_turn_over = True
        """Whether the user who was served last has to wait for its next turn."""

    def __contains__(self, user: int) -> bool:
        """Return whether a user waits."""
        return user in self._users

    def __len__(self) -> int:
        """Return the number of users who wait."""
        return len(self._users)

    @property
    def max_weight(self) -> int:
        """The most parts of a user."""
        return self.shares.max_weight

    @max_weight.setter
    def max_weight(self, max_weight: int) -> None:
        self.shares.max_weight = max_weight

    def n_turns(self) -> int:
        """Return how many requests are served until all users had their turns."""
        return sum(map(self.shares.weight, self._users))

    def begin(self, caller: Caller) -> None:
        """Count a permit that a caller was given."""
        self._permits.add(caller, 1)
        self.shares.add(caller)

    def end(self, caller: Caller) -> None:
        """Stop counting a permit."""
        self._permits.add(caller, -1)
        self.shares.remove(caller)

    def put(self, caller: Caller, entry: QueueEntry) -> None:
        """Add a waiting request.

        A new user goes last, but before the user who was served last, who would otherwise
        be served twice before a user who arrived in between; so does a new principal.
        """
        queue = self._users.get(caller.user)
        if queue is None:
            served = self._served
            queue = _UserQueue(served)
            last = served.user if served and self._is_turn_over else None
            _add_last(self._users, caller.user, queue, last)
        queue.put(caller, entry)
        self.shares.add(caller)

    def remove(self, caller: Caller, entry: QueueEntry) -> None:
        """Remove a waiting request."""
        queue = self._users[caller.user]
        queue.remove(caller, entry)
        self.shares.remove(caller)
        if not queue.entries:
            del self._users[caller.user]

    def take(self) -> QueueEntry:
        """Remove and return the next request; the queue must not be empty."""
        user = self._next_user()
        queue, weight = self._users[user], self.shares.weight(user)
        self._served, entry = queue.take(self._permits)
        self._is_turn_over = not queue.entries or queue.n_served >= weight
        if self._is_turn_over:
            del self._users[user]
        if self._is_turn_over and queue.entries:
            queue.n_served = 0
            self._users[user] = queue
        self.shares.remove(self._served)
        return entry

    def _next_user(self) -> int:
        """Return the user with the fewest permits for its weight, of equals the first."""
        found, fewest = next(iter(self._users)), math.inf
        for user in self._users:
            n_rounds = self._permits.of_user(user) // self.shares.weight(user)
            if not n_rounds:
                return user
            if n_rounds < fewest:
                found, fewest = user, n_rounds
        return found

    def note_served(self, caller: Caller) -> None:
        """Record that a caller was served without waiting."""
        self._served, self._is_turn_over = caller, True

    def by_caller(self) -> Iterator[list[QueueEntry]]:
        """Return the queues of all callers, in the order of service."""
        for queue in self._users.values():
            yield from queue.entries.values()

    def order(self) -> Iterator[int]:
        """Return all tickets in the order in which they are taken if none arrives.

        Where users have several permits, the order depends on which request leaves first;
        this estimate takes one of every user in turn, and of a gateway as many as its weight
        is now.
        """
        rounds = defaultdict[int, list[int]](list)  # a round has every user's turn
        for user, queue in self._users.items():
            weight = self.shares.weight(user)
            n_over = max(0, self._permits.of_user(user) - weight)
            first = n_over + min(queue.n_served, weight)
            for number, entry in enumerate(queue.order(self._permits), first):
                rounds[number // weight].append(entry.ticket)
        for number in sorted(rounds):
            yield from rounds[number]


class _UserQueue:
    """The waiting requests of one user, by principal.

    Args:
        served: the caller that was served last, if it is known.
    """

    def __init__(self, served: Caller | None) -> None:
        self.entries: dict[Caller, list[QueueEntry]] = {}  # in the order of turns
        self.n_served = 0
        """Requests that were served in the user's present turn."""
        self._served = served

    def put(self, caller: Caller, entry: QueueEntry) -> None:
        if caller in self.entries:
            insort(self.entries[caller], entry)
        else:
            _add_last(self.entries, caller, [entry], self._served)

    def remove(self, caller: Caller, entry: QueueEntry) -> None:
        queue = self.entries[caller]
        del queue[bisect_left(queue, entry)]
        if not queue:
            del self.entries[caller]

    def take(self, permits: CallerCounts) -> tuple[Caller, QueueEntry]:
        caller = next(iter(self.entries))
        if len(self.entries) > 1:
            caller = min(self.entries, key=permits.of)
        queue = self.entries.pop(caller)
        entry = queue.pop(0)
        if queue:
            self.entries[caller] = queue
        self._served = caller
        self.n_served += 1
        return caller, entry

    def order(self, permits: CallerCounts) -> Iterable[QueueEntry]:
        if len(self.entries) == 1:
            return next(iter(self.entries.values()))
        rounds = defaultdict[int, list[QueueEntry]](list)
        for caller, queue in self.entries.items():
            first = max(0, permits.of(caller) - 1)
            for number, entry in enumerate(queue, first):
                rounds[number].append(entry)
        return chain.from_iterable(rounds[number] for number in sorted(rounds))


def _add_last(items: dict[K, V], key: K, value: V, served: K | None) -> None:
    """Add one that begins to wait: last, but before the one that was served last."""
    last = next(reversed(items), None)
    items[key] = value
    if last is not None and last == served:
        items[last] = items.pop(last)
