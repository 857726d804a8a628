"""Estimate when a rejected request may be retried, from how long permits are held."""

import math
from typing import Final

from inferd.limits.admission import RETRY_AFTER_MAX_MS, RETRY_AFTER_MIN_MS

WEIGHT: Final = 1 / 8
"""Weight of the latest value in the moving mean; eight later ones reduce it to a third."""


class RetryEstimate:
    """Exponential moving mean of the time for which permits are held."""

    def __init__(self) -> None:
        self._mean_s: float | None = None

    def note(self, held_s: float) -> None:
        """Add the time for which a permit was held."""
        mean_s = held_s if self._mean_s is None else self._mean_s
        self._mean_s = mean_s + WEIGHT * (held_s - mean_s)

    def retry_after_ms(self, *, n_turns: int, max_active: int) -> int | None:
        """Estimate when ``n_turns`` permits are returned; ``None`` without any data."""
        if self._mean_s is None:
            return None
        turns_ms = math.ceil(1000 * self._mean_s * n_turns / max_active)
        return min(max(turns_ms, RETRY_AFTER_MIN_MS), RETRY_AFTER_MAX_MS)
