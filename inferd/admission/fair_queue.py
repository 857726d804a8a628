"""Fair queue: users are served round-robin, and each has a queue of requests.

The user with the fewest permits is first. Users with equally many are served in turn: a user
who begins to wait goes last, and one who was served goes last again. Within a user's queue
the highest priority is first, and the earliest among equals.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_NONE: Final[Mapping[int, int]] = {}


class QueueEntry(NamedTuple):
    """A waiting request; entries of one user sort in the order of service."""

    rank: int
    """The negative of the priority."""
    arrival: int
    """Number of requests that arrived before."""
    ticket: int


class FairQueue:
    """Round-robin queue of waiting requests by user.

    Cost: ``put`` and ``remove`` take O(log n) comparisons, ``take`` one per user, and
    ``order`` one step per request.
    """

    def __init__(self) -> None:
        self._queues: dict[int, list[QueueEntry]] = {}  # by uid, in the order of turns
        self._served: int | None = None

    def __contains__(self, uid: int) -> bool:
        """Return whether a user waits."""
        return uid in self._queues

    def __len__(self) -> int:
        """Return the number of users who wait."""
        return len(self._queues)

    def put(self, uid: int, entry: QueueEntry) -> None:
        """Add a waiting request.

        A new user goes last, but before the user who was served last, who would otherwise
        be served twice before a user who arrived in between.
        """
        if uid in self._queues:
            insort(self._queues[uid], entry)
            return
        last = next(reversed(self._queues), None)
        self._queues[uid] = [entry]
        if last is not None and last == self._served:
            self._queues[last] = self._queues.pop(last)

    def remove(self, uid: int, entry: QueueEntry) -> None:
        """Remove a waiting request."""
        queue = self._queues[uid]
        del queue[bisect_left(queue, entry)]
        if not queue:
            del self._queues[uid]

    def take(self, held: Mapping[int, int] = _NONE) -> QueueEntry:
        """Remove and return the next request; the queue must not be empty.

        Args:
            held: permits by user; users who are missing have none.
        """
        uid = min(self._queues, key=lambda user: held.get(user, 0))
        queue = self._queues.pop(uid)
        entry = queue.pop(0)
        if queue:
            self._queues[uid] = queue
        self._served = uid
        return entry

    def note_served(self, uid: int) -> None:
        """Record that a user was served without waiting."""
        self._served = uid

    def by_user(self) -> Iterator[list[QueueEntry]]:
        """Return the queues of all users, in the order of service."""
        yield from self._queues.values()

    def order(self, held: Mapping[int, int] = _NONE) -> Iterator[int]:
        """Return all tickets in the order in which they are taken if none arrives.

        Args:
            held: permits by user. If there are several, the order depends on which request
                leaves first; this estimate takes one of every user in turn.
        """
        rounds = defaultdict[int, list[int]](list)  # a round has one of every user
        for uid, queue in self._queues.items():
            first = max(0, held.get(uid, 0) - 1)
            for number, entry in enumerate(queue, first):
                rounds[number].append(entry.ticket)
        for number in sorted(rounds):
            yield from rounds[number]
