"""Who runs now, who waits, and who is turned away.

One gate for all sockets. It counts and decides; it knows no tasks and no clocks. The
shell calls ``arrive`` once for each request and ``leave`` once, whatever ended it.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from inferd.errors import DrainingError, QueueFullError


class _Place(NamedTuple):
    """One who waits."""

    ticket: int
    uid: int
    priority: int
    arrival: int
    """How many came to wait before."""


class Admission:
    """A gate with ``max_active`` permits and ``max_queued`` places to wait.

    Laws (held by property tests): active ≤ ``max_active``; waiting ≤ ``max_queued``;
    nobody waits while a permit is free; a user's turn comes where that user's requests
    arrived, and goes to the one of them with the highest priority, the earliest among
    equals; after everybody left, every permit is free.
    """

    def __init__(self, *, max_active: int, max_queued: int) -> None:
        self._max_active = max_active
        self._max_queued = max_queued
        self._active: set[int] = set()
        self._waiting: dict[int, _Place] = {}  # by ticket, in the order of turns
        self._arrivals = itertools.count()
        self._is_open = True

    @property
    def active(self) -> int:
        """Requests that hold a permit."""
        return len(self._active)

    @property
    def waiting(self) -> int:
        """Requests that wait for one."""
        return len(self._waiting)

    def bound(self, max_active: int) -> None:
        """Have no more permits than this; only before anybody arrives."""
        self._max_active = min(self._max_active, max_active)

    def arrive(self, ticket: int, *, uid: int = -1, priority: int = 0) -> bool:
        """Let a request in: true if it runs now, false if it waits.

        Args:
            ticket: a number no other present request has.
            uid: the caller's user.
            priority: among the same user's requests, higher first.

        Raises:
            QueueFullError: it has to go, at once.
            DrainingError: the gate is closed.
        """
        if not self._is_open:
            raise DrainingError
        if len(self._active) < self._max_active:
            self._active.add(ticket)
            return True
        if len(self._waiting) < self._max_queued:
            arrival = next(self._arrivals)
            self._waiting[ticket] = _Place(ticket, uid, priority, arrival)
            return False
        raise QueueFullError

    def leave(self, ticket: int) -> int | None:
        """Take a request out; give the ticket of the one that runs instead, if any.

        Leaving twice, or without having arrived, changes nothing.
        """
        self._waiting.pop(ticket, None)
        if ticket not in self._active:
            return None
        self._active.remove(ticket)
        successor = next(self.order(), None)
        if successor is None:
            return None
        self._take_turn(successor)
        self._active.add(successor)
        return successor

    def order(self) -> Iterator[int]:
        """Give the tickets of those who wait, the next to run first.

        The arrivals of a user are that user's turns; who takes which is a matter of
        priority among them. So no priority moves anybody past another user.
        """
        by_uid: dict[int, list[_Place]] = {}
        for place in self._waiting.values():
            by_uid.setdefault(place.uid, []).append(place)
        turns = {
            uid: iter(sorted(places, key=lambda each: (-each.priority, each.arrival)))
            for uid, places in by_uid.items()
        }
        for place in self._waiting.values():
            yield next(turns[place.uid]).ticket

    def close(self) -> None:
        """Turn every later arrival away; those inside go on."""
        self._is_open = False

    def _take_turn(self, successor: int) -> None:
        """Use up the first turn; the one whose it was gets the successor's own instead."""
        first, *others = self._waiting.values()
        places = [first if each.ticket == successor else each for each in others]
        self._waiting = {each.ticket: each for each in places}
