"""What happened in the last seconds, from the lives of requests; pure."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import UNSET, UnsetType

from inferd.server.history.record import Life
from inferd.wire.observed import Percentiles


class TimeSpan(NamedTuple):
    """A span of time up to now, in seconds on trio's clock."""

    began: float
    now: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(0.0, self.now - self.began)

    def overlap(self, start: float, end: float) -> float:
        """Return the seconds that a span has in common with this one."""
        return max(0.0, min(end, self.now) - max(start, self.began))


def busy_s(life: Life, window: TimeSpan) -> float:
    """Return the seconds for which a request ran within a window, without its pauses."""
    if life.started_at is None:
        return 0.0
    left_at = window.now if life.steps.left_at is None else life.steps.left_at
    whole = left_at - life.started_at
    if whole <= 0:
        return 0.0
    ran = max(0.0, 1 - life.paused_s / whole)
    return window.overlap(life.started_at, left_at) * ran


def tokens_in(life: Life, window: TimeSpan) -> float:
    """Return the tokens of an answer that fall into a window, as if they came evenly."""
    if life.first_at is None:
        return 0.0
    left_at = window.now if life.steps.left_at is None else life.steps.left_at
    whole = left_at - life.first_at
    if whole <= 0:
        return float(life.n_tokens) if window.began <= life.first_at else 0.0
    return life.n_tokens * window.overlap(life.first_at, left_at) / whole


def percentiles(times_s: Iterable[float]) -> Percentiles | UnsetType:
    """Return percentiles by the nearest rank, in milliseconds; unset of no times."""
    ordered = sorted(times_s)
    if not ordered:
        return UNSET
    p50, p95, p99 = (_at(ordered, part) for part in (0.5, 0.95, 0.99))
    return Percentiles(n=len(ordered), p50=p50, p95=p95, p99=p99)


def _at(ordered: Sequence[float], part: float) -> float:
    rank = max(1, math.ceil(part * len(ordered)))
    return round(ordered[rank - 1] * 1000, 3)
