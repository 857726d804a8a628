"""Shares of a limit, by user and then by principal, and counts that they are compared with."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from inferd.backend.caller import Caller

__all__ = ["NOT_FIRST", "CallerCounts", "First", "Shares"]


class Shares:
    """How a limit is divided among those who use it or want to.

    Each user has an equal part; a user with several principals has one for each of them, but
    no more than ``max_weight``, and they divide those equally.

    Args:
        callers: those who use the limit or want to; any may occur more than once.
        max_weight: the most parts of one user.
    """

    def __init__(self, callers: Iterable[Caller], max_weight: int) -> None:
        self._n_principals: dict[int, int] = {}
        for user, _ in {*callers}:
            self._n_principals[user] = self._n_principals.get(user, 0) + 1
        self._max_weight = max_weight
        self.n_parts = sum(min(n, max_weight) for n in self._n_principals.values())
        """The parts of all users."""

    def weight(self, user: int) -> int:
        """Return the number of parts of a user."""
        return min(self._n_principals[user], self._max_weight)

    def of_user(self, limit: int, user: int) -> int:
        """Return a user's share of a limit, rounded down."""
        return limit * self.weight(user) // self.n_parts

    def of(self, limit: int, caller: Caller) -> int:
        """Return a caller's share of a limit, rounded down."""
        user = caller.user
        return limit * self.weight(user) // (self.n_parts * self._n_principals[user])

    def excess(self, n: int, limit: int, caller: Caller) -> int:
        """Return a number above, below or equal to 0 as ``n`` is to a caller's exact share."""
        user = caller.user
        whole = self.n_parts * self._n_principals[user]
        return n * whole - limit * self.weight(user)


class First(NamedTuple):
    """Whether something is the first of its user or principal, which others cannot keep out."""

    is_first: bool = False
    among: int | None = None
    """The user among whose principals' firsts it is; ``None`` for one of the firsts of users."""


NOT_FIRST: Final = First()


@dataclass
class CallerCounts:
    """Counts by caller and by user; those that are 0 are not kept."""

    _callers: Counter[Caller] = field(default_factory=Counter)
    _users: Counter[int] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[Caller]:
        """Iterate over the callers with a count."""
        return iter(self._callers)

    def of(self, caller: Caller) -> int:
        """Return a caller's count."""
        return self._callers[caller]

    def of_user(self, user: int) -> int:
        """Return the sum of the counts of a user's principals."""
        return self._users[user]

    def add(self, caller: Caller, n: int) -> None:
        """Add to a caller's count; ``n`` may be negative."""
        self._callers[caller] += n
        self._users[caller.user] += n
        if not self._callers[caller]:
            del self._callers[caller]
        if not self._users[caller.user]:
            del self._users[caller.user]

    def next_first(self, caller: Caller) -> First:
        """Tell of what the next one of a caller would be the first."""
        if not self._users[caller.user]:
            return First(is_first=True)
        if not self._callers[caller]:
            return First(is_first=True, among=caller.user)
        return NOT_FIRST
