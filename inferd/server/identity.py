"""Which user a uid counts as.

A person may have tens of thousands of uids besides their own: subordinate ones, which the
system hands out for user namespaces. Here each of them is one user all the same.
"""

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from inferd.job import NOBODY

ROOT: Final = 0
N_IDS: Final = 2**32 - 1
"""Numbers of users, or of groups; the one after the last means none."""

FIRST_SUBORDINATE: Final = 65_536
"""The first number that can be a subordinate one by the files of the system. Below are
people, services and what systemd gives out for a while, whom a range in the wrong place is
not to make anybody else; shadow's own ranges begin at 100,000, systemd's at 524,288."""

_GROUPED: Final = 2**32
"""Added to the first uid of a range that counts as one user: no uid is as large."""

_APART: Final = NOBODY - 2**40
"""From this down to 2**32 below it: uids that count as one user, and share nothing. The
numbers between it and ``NOBODY`` are left to strangers."""

_MAX_NESTED: Final = 8
"""Ranges within ranges that are followed to their person: newuidmap nests no deeper in
practice, and owners may name each other in a circle."""


K = TypeVar("K")


class Identity(NamedTuple):
    """As whom somebody is treated."""

    user: int
    """As whom one is counted: shares of the queue, connections, descriptors, memory."""
    owner: int
    """Whose one's requests are, and what is kept of them: who may cancel and list them,
    and have what is cached of them."""

    @property
    def number(self) -> int:
        """The uid by which the log names the user: its own, or the first of its range."""
        return self.user % _GROUPED


class Range(NamedTuple):
    """Numbers one after the other that are not users of their own."""

    first: int
    n: int
    """How many there are."""
    person: int | None = None
    """The uid of the one user who has them; ``None`` if that is unknown, or nobody who
    could log in."""
    block: int = 0
    """Where there is no person: each so many are a user, with all that is kept of them.
    With 0 all count as one user, and what is kept is each uid's own."""

    @property
    def end(self) -> int:
        """The number after the last."""
        return self.first + self.n


class _Segment(NamedTuple):
    """A part of the numbers that one range has, or several that contradict each other."""

    first: int
    end: int
    of: Range


class Ranges:
    """Finds the range of a number, in time by the logarithm of how many there are.

    Numbers that several persons have, or a person and somebody unknown, are a range of
    their own without a person: none of them is to get at what is kept of another.
    """

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._segments = list(_segments(ranges))
        self._firsts = [each.first for each in self._segments]

    def find(self, number: int) -> Range | None:
        """Give the range that has a number, if any has."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or number >= self._segments[at].end:
            return None
        return self._segments[at].of


def overlap(ranges: Iterable[Range]) -> tuple[Range, Range] | None:
    """Give two ranges that have numbers in common, if there are any."""
    ordered = sorted(ranges, key=lambda each: each.first)
    for one, other in itertools.pairwise(ordered):
        if one.end > other.first:
            return one, other
    return None


def _segments(ranges: Iterable[Range]) -> Iterator[_Segment]:
    """Cut ranges where others begin or end, so that no two have a number in common."""
    borders: list[tuple[int, bool, Range]] = []
    for each in ranges:
        if each.n > 0:
            borders += [(each.first, True, each), (each.end, False, each)]
    borders.sort(key=lambda border: border[0])
    here: Counter[Range] = Counter()
    persons: Counter[int | Range] = Counter()
    before = 0
    for at, begins, each in borders:
        if here and at > before:
            yield _Segment(before, at, _one_of(here, persons, before, at))
        _count(here, each, 1 if begins else -1)
        _count(persons, _claimant(each), 1 if begins else -1)
        before = at


def _count(counter: Counter[K], key: K, step: int) -> None:
    counter[key] += step
    if not counter[key]:
        del counter[key]


def _claimant(of: Range) -> int | Range:
    """Tell who has a range: a person, who may have several, or the range itself."""
    return of if of.person is None else of.person


def _one_of(
    here: Counter[Range], persons: Counter[int | Range], first: int, end: int
) -> Range:
    return next(iter(here)) if len(persons) == 1 else Range(first, end - first)


@dataclass(frozen=True)
class Identities:
    """Tells of everybody as whom they count.

    Args:
        configured: ranges of uids that the operator names; they come before the others.
        uids: ranges that the system has handed out.
        gids: the same of groups, for a uid that is in no range: who has a group that was
            handed out to somebody is that one, or was put there by root.
        accounts: uids that are nobody's but their own, whatever range they are in.
    """

    configured: Ranges = Ranges()  # noqa: RUF009  # it does not change
    uids: Ranges = Ranges()  # noqa: RUF009
    gids: Ranges = Ranges()  # noqa: RUF009
    accounts: Collection[int] = frozenset({ROOT})

    def of(self, uid: int, gid: int) -> Identity:
        """Tell as whom somebody counts whom the kernel knows by these numbers."""
        if (by_group := self._person_by_group(uid, gid)) is not None:
            uid = by_group
        for _ in range(_MAX_NESTED):
            found = self._range_of(uid)
            if found is None or found.person == uid:
                break
            if found.person is None:
                return _in_range(found, uid)
            uid = found.person
        return Identity(uid, uid)

    def _range_of(self, uid: int) -> Range | None:
        if uid in self.accounts:
            return None
        return self.configured.find(uid) or self.uids.find(uid)

    def _person_by_group(self, uid: int, gid: int) -> int | None:
        if uid < FIRST_SUBORDINATE or uid in self.accounts or self._range_of(uid):
            return None
        found = self.gids.find(gid)
        return None if found is None else found.person


def _in_range(found: Range, uid: int) -> Identity:
    """Tell as whom a uid counts that no known person has."""
    if found.block:
        n_blocks = (uid - found.first) // found.block
        user = _GROUPED + found.first + n_blocks * found.block
        return Identity(user, user)
    return Identity(_GROUPED + found.first, _APART - uid)
