"""Rate limits for log lines: one user's lines must not push out those of others."""

from collections.abc import MutableMapping
from typing import Final

from inferd.limits.log import (
    LOG_BURST_LINES,
    LOG_LINES_PER_S,
    LOG_SERVED_BURST_LINES,
    LOG_SERVED_LINES_PER_S,
    MAX_REFUSAL_LOG_KEYS,
    REFUSAL_LOG_INTERVAL_S,
)
from inferd.limits.server import MAX_FAIR_SHARE_USERS


class LogThrottle:
    """Throttle that lets one event of a kind through per ``REFUSAL_LOG_INTERVAL_S``.

    Bounds:
        Remembers ``MAX_REFUSAL_LOG_KEYS`` kinds; the next event of a forgotten kind
        passes at once.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], tuple[float, int]] = {}

    def count(self, *kind: object, now: float) -> int:
        """Count an event; give how many events one line now stands for, or 0.

        Args:
            kind: values by which events are the same kind.
            now: seconds on a monotonic clock.
        """
        logged_at, n_unlogged = self._kinds.get(kind, (None, 0))
        if logged_at is not None and now < logged_at + REFUSAL_LOG_INTERVAL_S:
            self._kinds[kind] = (logged_at, n_unlogged + 1)
            return 0
        self._kinds.pop(kind, None)
        if len(self._kinds) >= MAX_REFUSAL_LOG_KEYS:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[kind] = (now, 0)
        return n_unlogged + 1


SERVED: Final = "request_done"
"""Suffix of events about finished requests: they have a higher quota of their own,
since a user pays for each with a request."""


class TokenBucket:
    """Token bucket of log lines.

    Args:
        burst: size of the bucket.
        per_s: lines added per second.
        now: seconds on a monotonic clock.
    """

    def __init__(self, burst: int, per_s: float, now: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._n_left = float(burst)
        self._at = now

    def take(self, now: float) -> bool:
        """Take one line, if there is one."""
        grown = self._n_left + (now - self._at) * self._per_s
        self._n_left, self._at = min(grown, self._burst), now
        if self._n_left < 1:
            return False
        self._n_left -= 1
        return True


class LogQuota:
    """Quota of log lines about each user.

    Once a user's bucket is empty, events of a kind have one line per
    ``REFUSAL_LOG_INTERVAL_S``, with their number.

    Bounds:
        Remembers ``MAX_FAIR_SHARE_USERS`` users; a forgotten one has a full bucket again.
    """

    def __init__(self) -> None:
        self._buckets: dict[tuple[object, bool], TokenBucket] = {}
        self._throttle = LogThrottle()

    def allows(self, event: MutableMapping[str, object], now: float) -> bool:
        """Tell whether to log an event; set ``times`` if it stands for several.

        Args:
            event: its name and its fields.
            now: seconds on a monotonic clock.
        """
        user = event.get("peer_owner", event.get("peer_uid"))
        if user is None or "times" in event:  # about no user, or throttled already
            return True
        name = str(event.get("event", ""))
        if self._bucket(user, is_served=name.endswith(SERVED), now=now).take(now):
            return True
        kind = (user, name, event.get("socket"), event.get("code"))
        n_events = self._throttle.count(*kind, now=now)
        if n_events:
            event["times"] = n_events
        return n_events > 0

    def _bucket(self, user: object, *, is_served: bool, now: float) -> TokenBucket:
        bucket = self._buckets.get((user, is_served))
        if bucket is None:
            if len(self._buckets) >= 2 * MAX_FAIR_SHARE_USERS:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[user, is_served] = (
                TokenBucket(LOG_SERVED_BURST_LINES, LOG_SERVED_LINES_PER_S, now)
                if is_served
                else TokenBucket(LOG_BURST_LINES, LOG_LINES_PER_S, now)
            )
        return bucket
