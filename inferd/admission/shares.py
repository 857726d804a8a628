"""Shares of a limit, by user and then by principal, and counts that they are compared with."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from inferd.backend.caller import Caller

__all__ = ["NOT_FIRST", "CallerCounts", "First", "Shares"]

K = TypeVar("K", Caller, int)


class Shares:
    """How a limit is divided among those who use it or want to.

    Each user has an equal part; a user with several principals has one for each of them, but
    no more than ``max_weight``, and they divide those equally.

    Cost: ``add``, ``remove`` and each question take constant time.

    Args:
        callers: those who use the limit or want to; any may occur more than once.
        max_weight: the most parts of one user; may change at any time.
    """

    def __init__(self, callers: Iterable[Caller] = (), max_weight: int = 1) -> None:
        self._n_times: dict[Caller, int] = {}
        self._n_principals: dict[int, int] = {}
        self._max_weight = max_weight
        self.n_parts = 0
        """The parts of all users."""
        for caller in callers:
            self.add(caller)

    def __len__(self) -> int:
        """Return the number of different callers."""
        return len(self._n_times)

    def add(self, caller: Caller) -> None:
        """Count a caller once more."""
        n_times = self._n_times.get(caller, 0)
        self._n_times[caller] = n_times + 1
        if not n_times:
            n_principals = self._n_principals.get(caller[0], 0)
            self._n_principals[caller[0]] = n_principals + 1
            self.n_parts += n_principals < self._max_weight

    def remove(self, caller: Caller) -> None:
        """Count a caller once less."""
        n_times = self._n_times.pop(caller) - 1
        if n_times:
            self._n_times[caller] = n_times
            return
        n_principals = self._n_principals.pop(caller[0]) - 1
        self.n_parts -= n_principals < self._max_weight
        if n_principals:
            self._n_principals[caller[0]] = n_principals

    @property
    def max_weight(self) -> int:
        """The most parts of one user."""
        return self._max_weight

    @max_weight.setter
    def max_weight(self, max_weight: int) -> None:
        self._max_weight = max_weight
        self.n_parts = sum(map(self.weight, self._n_principals))

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
        n_principals = self._n_principals[caller.user]
        weight = min(n_principals, self._max_weight)
        return n * self.n_parts * n_principals - limit * weight


class First(NamedTuple):
    """Whether something is the first of its user or principal, which others cannot keep out."""

    is_first: bool = False
    among: int | None = None
    """The user among whose principals' firsts it is; ``None`` for one of the firsts of users."""


NOT_FIRST: Final = First()


@dataclass
class CallerCounts:
    """Counts by caller and by user; those that are 0 are not kept."""

    _callers: dict[Caller, int] = field(default_factory=dict)
    _users: dict[int, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Caller]:
        """Iterate over the callers with a count."""
        return iter(self._callers)

    def of(self, caller: Caller) -> int:
        """Return a caller's count."""
        return self._callers.get(caller, 0)

    def of_user(self, user: int) -> int:
        """Return the sum of the counts of a user's principals."""
        return self._users.get(user, 0)

    def add(self, caller: Caller, n: int) -> None:
        """Add to a caller's count; ``n`` may be negative."""
        _add(self._callers, caller, n)
        _add(self._users, caller.user, n)

    def next_first(self, caller: Caller) -> First:
        """Tell of what the next one of a caller would be the first."""
        if caller.user not in self._users:
            return First(is_first=True)
        if caller not in self._callers:
            return First(is_first=True, among=caller.user)
        return NOT_FIRST


def _add(counts: dict[K, int], key: K, n: int) -> None:
    """Add to a count, which is not kept if it is 0."""
    if total := counts.get(key, 0) + n:
        counts[key] = total
    else:
        counts.pop(key, None)
