"""How many lines of the log one user may cause: others' lines must not be pushed out by it."""

from collections.abc import MutableMapping
from typing import Final

from inferd.server.limits import (
    LOG_BURST_LINES,
    LOG_LINES_PER_S,
    LOG_SERVED_BURST_LINES,
    LOG_SERVED_LINES_PER_S,
    MAX_USERS_REMEMBERED,
)
from inferd.server.seldom import Seldom

SERVED: Final = "request_done"
"""How the events end that tell of work that was done: they cost whoever causes them more."""


class Bucket:
    """Lines that may be written: so many at once, and so many a second.

    Args:
        burst: at once.
        per_s: for good.
        now: seconds, on a clock that does not go back.
    """

    def __init__(self, burst: int, per_s: float, now: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._n_left = float(burst)
        self._at = now

    def take(self, now: float) -> bool:
        """Take one, if there is one."""
        grown = self._n_left + (now - self._at) * self._per_s
        self._n_left, self._at = min(grown, self._burst), now
        if self._n_left < 1:
            return False
        self._n_left -= 1
        return True


class LogQuota:
    """Lets lines through that are about a user, as far as the user has any left.

    Once a user has none left, events of each kind have a line in
    ``REFUSALS_LOGGED_EVERY_S``, which says how many they were.

    Bounds:
        Remembers ``MAX_USERS_REMEMBERED`` users; the one that is forgotten begins anew.
    """

    def __init__(self) -> None:
        self._buckets: dict[tuple[object, bool], Bucket] = {}
        self._seldom = Seldom()

    def allows(self, event: MutableMapping[str, object], now: float) -> bool:
        """Tell whether to write an event; one that stands for several says so then.

        Args:
            event: its name and its fields.
            now: seconds, on a clock that does not go back.
        """
        user = event.get("peer_owner", event.get("peer_uid"))
        if user is None or "times" in event:  # about nobody, or counted already
            return True
        name = str(event.get("event", ""))
        if self._bucket(user, is_served=name.endswith(SERVED), now=now).take(now):
            return True
        kind = (user, name, event.get("socket"), event.get("code"))
        n_events = self._seldom.count(*kind, now=now)
        if n_events:
            event["times"] = n_events
        return n_events > 0

    def _bucket(self, user: object, *, is_served: bool, now: float) -> Bucket:
        bucket = self._buckets.get((user, is_served))
        if bucket is None:
            if len(self._buckets) >= 2 * MAX_USERS_REMEMBERED:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[user, is_served] = (
                Bucket(LOG_SERVED_BURST_LINES, LOG_SERVED_LINES_PER_S, now)
                if is_served
                else Bucket(LOG_BURST_LINES, LOG_LINES_PER_S, now)
            )
        return bucket
