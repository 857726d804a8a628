"""Tokens that each principal has used today, and those that its requests may yet use; pure."""

from collections import Counter
from heapq import nlargest
from typing import Annotated, Final

from msgspec import Meta, Struct

from inferd.limits.bridge import MAX_TOKENS, RESERVED_RETRY_S

DAY_S: Final = 86_400


class DayUsage(Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of a day."""

    day: Annotated[int, Meta(ge=0)] = 0
    """In UTC, since 1970."""
    used: dict[str, Annotated[int, Meta(ge=0)]] = {}
    """Tokens, by principal."""


def add_usage(kept: DayUsage, before: DayUsage, now: DayUsage) -> DayUsage:
    """Add what one bridge has counted between two moments to what several have kept.

    Args:
        kept: by all of them; of another day, it counts no more.
        before: what the bridge had counted at the first moment, where that was kept.
        now: what it has counted at the second.

    Returns:
        The tokens of all, never less than the bridge's own; of the names that used most.
    """
    used = Counter(kept.used if kept.day == now.day else {})
    earlier = before.used if before.day == now.day else {}
    for name, n_tokens in now.used.items():
        used[name] = max(n_tokens, used[name] + n_tokens - earlier.get(name, 0))
    return DayUsage(now.day, _most(used))


def _most(used: Counter[str]) -> dict[str, int]:
    return dict(nlargest(MAX_TOKENS, used.items(), key=lambda each: each[1]))


class DailyQuota:
    """Counts tokens by name, from midnight in UTC on.

    A request reserves at its start as many as it can use, and is settled at its end. One that
    begins while tokens are left may use more than are left; no other begins meanwhile.

    Args:
        usage: what was used before.

    Bounds:
        Memory: an entry for each name that has a quota; ``usage`` has ``MAX_TOKENS`` of them.
    """

    def __init__(self, usage: DayUsage | None = None) -> None:
        usage = usage or DayUsage()
        self._day = usage.day
        self._used = Counter(usage.used)
        self._reserved: Counter[str] = Counter()

    def usage(self) -> DayUsage:
        """Return what is worth keeping: the names that have used most."""
        return DayUsage(self._day, _most(self._used))

    def add_others(self, own: DayUsage, total: DayUsage) -> None:
        """Count what other bridges have used.

        Args:
            own: what was counted here.
            total: what ``add_usage`` has made of that.
        """
        if self._day == own.day == total.day:
            for name, n_tokens in total.used.items():
                self._used[name] += max(0, n_tokens - own.used.get(name, 0))

    def left(self, name: str, quota: int, now_s: float) -> int:
        """Return the tokens that are left for further requests of a name today.

        Args:
            name: of the principal.
            quota: its tokens a day.
            now_s: seconds since 1970.
        """
        self._begin(now_s)
        return max(0, quota - self._used[name] - self._reserved[name])

    def wait_s(self, name: str, quota: int, now_s: float) -> float:
        """Return the seconds until a name may have tokens left; 0 for now."""
        if self.left(name, quota, now_s):
            return 0.0
        is_used_up = self._used[name] >= quota
        return self.reset_s(now_s) if is_used_up else RESERVED_RETRY_S

    def reset_s(self, now_s: float) -> float:
        """Return the seconds until midnight."""
        return (int(now_s // DAY_S) + 1) * DAY_S - now_s

    def reserve(self, name: str, quota: int, n_tokens: int, now_s: float) -> int:
        """Reserve tokens for a request; return how many, all that are left at most."""
        n_reserved = min(n_tokens, self.left(name, quota, now_s))
        self._reserved[name] += n_reserved
        return n_reserved

    def lower(self, name: str, n_reserved: int, n_most: int) -> int:
        """Give back what a request cannot use any more; return what it still reserves.

        Args:
            name: of the principal.
            n_reserved: tokens that it has reserved.
            n_most: tokens that it may use, as is known by now.
        """
        n_left = min(n_reserved, n_most)
        self._reserved[name] -= n_reserved - n_left
        return n_left

    def settle(self, name: str, n_reserved: int, n_tokens: int, now_s: float) -> None:
        """Count the tokens that a request has used in place of those that it reserved."""
        self._begin(now_s)
        self._reserved[name] -= n_reserved
        if not self._reserved[name]:
            del self._reserved[name]
        if n_tokens:
            self._used[name] += n_tokens

    def _begin(self, now_s: float) -> None:
        day = int(now_s // DAY_S)
        if day != self._day:
            self._day = day
            self._used.clear()
