"""Map uids to users.

A person may have tens of thousands of uids besides their own: subordinate uids, which the
system assigns for user namespaces. Here all uids of a person count as one user.
"""

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from inferd.backend.job import NO_UID

ROOT: Final = 0
N_IDS: Final = 2**32 - 1
"""How many uids, or gids, there are; the number after the last one stands for none."""

FIRST_SUBORDINATE: Final = 65_536
"""The first number that subuid(5) and subgid(5) may assign. Lower numbers belong to people,
services and systemd's dynamic users, who must not become another user through a range in
the wrong place; shadow's own ranges begin at 100,000, systemd's at 524,288."""

_SHARED_USER_OFFSET: Final = 2**32
"""Added to the first uid of a range that counts as one user: larger than any uid."""

_SEPARATE_OWNER_BASE: Final = NO_UID - 2**40
"""Largest owner id for uids that count as one user but share no data: the owner id of such a
uid is this number minus the uid. The ids between this and ``NO_UID`` are for peers with the
overflow uid."""

_MAX_NESTED: Final = 8
"""Nested ranges that are followed to a person: newuidmap does not nest deeper in practice,
and owners in the files may name each other in a cycle."""


K = TypeVar("K")


class Identity(NamedTuple):
    """The numbers by which a peer is accounted."""

    user: int
    """The user for quotas: shares of the queue, connections, descriptors, memory."""
    owner: int
    """The owner of requests and their data: who may cancel and list them, and reuse their
    cached prefixes and media."""

    @property
    def number(self) -> int:
        """The uid by which the log names the user: its own, or the first of its range."""
        return self.user % _SHARED_USER_OFFSET


class IdRange(NamedTuple):
    """Consecutive uids or gids that are not users of their own."""

    first: int
    n: int
    """How many numbers are in the range."""
    person: int | None = None
    """The uid of the one user to whom the range belongs; ``None`` if it is unknown or not a
    person's."""
    block: int = 0
    """Where there is no person: size of the blocks that are one user each, who owns its
    data. With 0 the whole range counts as one user, and each uid owns its own data."""

    @property
    def end(self) -> int:
        """The number after the last."""
        return self.first + self.n


class _Segment(NamedTuple):
    """Consecutive numbers in one range, or in several that overlap."""

    first: int
    end: int
    of: IdRange


class IdRanges:
    """Finds the range of a number in O(log n) of the ranges.

    Where ranges of several persons overlap, or of a person and an unknown owner, the shared
    numbers are a range of their own without a person: nobody may read another's data.
    """

    def __init__(self, ranges: Iterable[IdRange] = ()) -> None:
        self._segments = list(_segments(ranges))
        self._firsts = [each.first for each in self._segments]

    def find(self, number: int) -> IdRange | None:
        """Find the range that contains a number."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or number >= self._segments[at].end:
            return None
        return self._segments[at].of


def find_overlap(ranges: Iterable[IdRange]) -> tuple[IdRange, IdRange] | None:
    """Find two ranges that overlap."""
    ordered = sorted(ranges, key=lambda each: each.first)
    for one, other in itertools.pairwise(ordered):
        if one.end > other.first:
            return one, other
    return None


def _segments(ranges: Iterable[IdRange]) -> Iterator[_Segment]:
    """Split ranges where others begin or end, so that no two segments overlap."""
    boundaries: list[tuple[int, bool, IdRange]] = []
    for each in ranges:
        if each.n > 0:
            boundaries += [(each.first, True, each), (each.end, False, each)]
    boundaries.sort(key=lambda boundary: boundary[0])
    open_ranges: Counter[IdRange] = Counter()
    claimants: Counter[int | IdRange] = Counter()
    before = 0
    for at, begins, each in boundaries:
        if open_ranges and at > before:
            yield _Segment(
                before, at, _range_for_segment(open_ranges, claimants, before, at)
            )
        _count(open_ranges, each, 1 if begins else -1)
        _count(claimants, _claimant(each), 1 if begins else -1)
        before = at


def _count(counter: Counter[K], key: K, step: int) -> None:
    counter[key] += step
    if not counter[key]:
        del counter[key]


def _claimant(of: IdRange) -> int | IdRange:
    """Return the person of a range, who may have several, or else the range itself."""
    return of if of.person is None else of.person


def _range_for_segment(
    open_ranges: Counter[IdRange],
    claimants: Counter[int | IdRange],
    first: int,
    end: int,
) -> IdRange:
    return (
        next(iter(open_ranges)) if len(claimants) == 1 else IdRange(first, end - first)
    )


@dataclass(frozen=True)
class Identities:
    """Maps credentials to the user that they count as.

    Args:
        configured: ranges of uids from the configuration; they take precedence.
        uids: ranges of uids from the system's files.
        gids: ranges of gids from them, for a uid in no range: a process whose gid was
            assigned to a person is that person's, or was given the gid by root.
        accounts: uids that count as themselves, whatever range contains them.
    """

    configured: IdRanges = IdRanges()  # noqa: RUF009  # it does not change
    uids: IdRanges = IdRanges()  # noqa: RUF009
    gids: IdRanges = IdRanges()  # noqa: RUF009
    accounts: Collection[int] = frozenset({ROOT})

    def of(self, uid: int, gid: int) -> Identity:
        """Return the identity of a process with these credentials."""
        if (by_group := self._person_by_group(uid, gid)) is not None:
            uid = by_group
        for _ in range(_MAX_NESTED):
            found = self._range_of(uid)
            if found is None or found.person == uid:
                break
            if found.person is None:
                return _identity_without_person(found, uid)
            uid = found.person
        return Identity(uid, uid)

    def _range_of(self, uid: int) -> IdRange | None:
        if uid in self.accounts:
            return None
        return self.configured.find(uid) or self.uids.find(uid)

    def _person_by_group(self, uid: int, gid: int) -> int | None:
        if uid < FIRST_SUBORDINATE or uid in self.accounts or self._range_of(uid):
            return None
        found = self.gids.find(gid)
        return None if found is None else found.person


def _identity_without_person(found: IdRange, uid: int) -> Identity:
    """Return the identity of a uid in a range that belongs to no known person."""
    if found.block:
        n_blocks = (uid - found.first) // found.block
        user = _SHARED_USER_OFFSET + found.first + n_blocks * found.block
        return Identity(user, user)
    return Identity(_SHARED_USER_OFFSET + found.first, _SEPARATE_OWNER_BASE - uid)
