"""Fair queue: users are served round-robin, each has its principals served so, in turn.

The user with the fewest permits for its weight is first: all have the weight 1, but a gateway
has a larger one while several of its principals wait or run. Users with equally many are served
in turn, each as many times as its weight says: a user who begins to wait goes last, and one whose
turn is over goes last again. Of a user's principals the one with the fewest permits is first, and
those with equally many are served in turn. Within a principal's queue the highest priority is
first, and the earliest among equals.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from inferd.admission.shares import Shares
from inferd.backend.caller import Caller

__all__ = ["FairQueue", "QueueEntry", "permits_of_users"]

Permits = Mapping[Caller, int]
_NONE: Final[Permits] = {}
K = TypeVar("K")
V = TypeVar("V")


class QueueEntry(NamedTuple):
    """A waiting request; entries of one caller sort in the order of service."""

    rank: int
    """The negative of the priority."""
    arrival: int
    """Number of requests that arrived before."""
    ticket: int


def permits_of_users(permits: Permits) -> dict[int, int]:
    """Add up the permits of each user's principals."""
    of_users: dict[int, int] = {}
    for (user, _), n in permits.items():
        of_users[user] = of_users.get(user, 0) + n
    return of_users


class FairQueue:
    """Round-robin queue of waiting requests by user, and by the principals of each.

    Methods that are passed permits take them by caller; those who are missing have none.

    Cost: ``put`` and ``remove`` take O(log n) comparisons, ``take`` one step per caller, and
    ``order`` one step per request.

    Args:
        max_weight: of a user; may change at any time.
    """

    def __init__(self, max_weight: int = 1) -> None:
        self.max_weight = max_weight
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

    def n_turns(self, permits: Permits = _NONE) -> int:
        """Return how many requests are served until all users had their turns."""
        shares = self._shares(permits)
        return sum(map(shares.weight, self._users))

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

    def remove(self, caller: Caller, entry: QueueEntry) -> None:
        """Remove a waiting request."""
        queue = self._users[caller.user]
        queue.remove(caller, entry)
        if not queue.entries:
            del self._users[caller.user]

    def take(self, permits: Permits = _NONE) -> QueueEntry:
        """Remove and return the next request; the queue must not be empty."""
        shares, of_users = self._shares(permits), permits_of_users(permits)
        user = min(
            self._users, key=lambda user: of_users.get(user, 0) // shares.weight(user)
        )
        queue = self._users[user]
        self._served, entry = queue.take(permits)
        self._is_turn_over = not queue.entries or queue.n_served >= shares.weight(user)
        if self._is_turn_over:
            del self._users[user]
        if self._is_turn_over and queue.entries:
            queue.n_served = 0
            self._users[user] = queue
        return entry

    def note_served(self, caller: Caller) -> None:
        """Record that a caller was served without waiting."""
        self._served, self._is_turn_over = caller, True

    def by_caller(self) -> Iterator[list[QueueEntry]]:
        """Return the queues of all callers, in the order of service."""
        for queue in self._users.values():
            yield from queue.entries.values()

    def order(self, permits: Permits = _NONE) -> Iterator[int]:
        """Return all tickets in the order in which they are taken if none arrives.

        Where users have several permits, the order depends on which request leaves first;
        this estimate takes one of every user in turn, and of a gateway as many as its weight
        is now.
        """
        shares, of_users = self._shares(permits), permits_of_users(permits)
        rounds = defaultdict[int, list[int]](list)  # a round has every user's turn
        for user, queue in self._users.items():
            weight = shares.weight(user)
            first = max(0, of_users.get(user, 0) - weight) + min(queue.n_served, weight)
            for number, entry in enumerate(queue.order(permits), first):
                rounds[number // weight].append(entry.ticket)
        for number in sorted(rounds):
            yield from rounds[number]

    def _shares(self, permits: Permits) -> Shares:
        """Return the shares of those who wait or have permits."""
        waiting = (queue.entries for queue in self._users.values())
        return Shares(chain(permits, *waiting), self.max_weight)


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

    def take(self, permits: Permits) -> tuple[Caller, QueueEntry]:
        caller = min(self.entries, key=lambda each: permits.get(each, 0))
        queue = self.entries.pop(caller)
        entry = queue.pop(0)
        if queue:
            self.entries[caller] = queue
        self._served = caller
        self.n_served += 1
        return caller, entry

    def order(self, permits: Permits) -> Iterable[QueueEntry]:
        if len(self.entries) == 1:
            return next(iter(self.entries.values()))
        rounds = defaultdict[int, list[QueueEntry]](list)
        for caller, queue in self.entries.items():
            first = max(0, permits.get(caller, 0) - 1)
            for number, entry in enumerate(queue, first):
                rounds[number].append(entry)
        return chain.from_iterable(rounds[number] for number in sorted(rounds))


def _add_last(items: dict[K, V], key: K, value: V, served: K | None) -> None:
    """Add one that begins to wait: last, but before the one that was served last."""
    last = next(reversed(items), None)
    items[key] = value
    if last is not None and last == served:
        items[last] = items.pop(last)
