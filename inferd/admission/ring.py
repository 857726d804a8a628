"""Users in a ring, each with a line of requests: whose turn is next?

Who has fewest permits is first. Among equals, before a user's turn comes no other has two:
one who comes to wait goes last, and one who had a turn goes last again. Within a line the
highest priority is first, and the earliest among equals.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_NONE: Final[Mapping[int, int]] = {}


class Place(NamedTuple):
    """One who waits; the places of a line sort as their turns come."""

    rank: int
    """The priority's negative."""
    arrival: int
    """How many arrived before."""
    ticket: int


class Ring:
    """Those who wait, by user.

    Cost: O(log n) comparisons for ``put`` and ``remove``, one for each user for ``take``;
    none of two who wait for ``order``, which takes a step for each.
    """

    def __init__(self) -> None:
        self._lines: dict[int, list[Place]] = {}  # by uid, in the order of turns
        self._served: int | None = None

    def __contains__(self, uid: int) -> bool:
        """Tell whether a user waits."""
        return uid in self._lines

    def __len__(self) -> int:
        """Count the users."""
        return len(self._lines)

    def put(self, uid: int, place: Place) -> None:
        """Have one wait.

        A user who did not goes last, yet before one who has only just been served: that
        one would else be served twice before a user who came meanwhile.
        """
        if uid in self._lines:
            insort(self._lines[uid], place)
            return
        last = next(reversed(self._lines), None)
        self._lines[uid] = [place]
        if last is not None and last == self._served:
            self._lines[last] = self._lines.pop(last)

    def remove(self, uid: int, place: Place) -> None:
        """Have one who waits wait no more."""
        line = self._lines[uid]
        del line[bisect_left(line, place)]
        if not line:
            del self._lines[uid]

    def take(self, held: Mapping[int, int] = _NONE) -> Place:
        """Take out the one whose turn it is; there has to be one.

        Args:
            held: permits by user; none for those that are missing.
        """
        uid = min(self._lines, key=lambda each: held.get(each, 0))
        line = self._lines.pop(uid)
        place = line.pop(0)
        if line:
            self._lines[uid] = line
        self._served = uid
        return place

    def pass_over(self, uid: int) -> None:
        """Note that a user was served who did not have to wait."""
        self._served = uid

    def lines(self) -> Iterator[list[Place]]:
        """Give each user's, in the order of their turns."""
        yield from self._lines.values()

    def order(self, held: Mapping[int, int] = _NONE) -> Iterator[int]:
        """Give the tickets of all, as they are taken if nobody else comes.

        Args:
            held: permits by user. Where there are several it depends on who leaves first,
                and this is a guess: one of each user's.
        """
        rounds = defaultdict[int, list[int]](list)  # in each, one of each user's
        for uid, line in self._lines.items():
            first = max(0, held.get(uid, 0) - 1)
            for number, place in enumerate(line, first):
                rounds[number].append(place.ticket)
        for number in sorted(rounds):
            yield from rounds[number]
