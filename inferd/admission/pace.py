"""When may one who was refused try again? As long as permits were held of late, says when."""

import math
from typing import Final

from inferd.limits import RETRY_AFTER_MAX_MS, RETRY_AFTER_MIN_MS

WEIGHT: Final = 1 / 8
"""Of the latest in the mean: after eight more, two thirds of it are forgotten."""


class Pace:
    """For how long permits are held, in the mean."""

    def __init__(self) -> None:
        self._mean_s: float | None = None

    def note(self, held_s: float) -> None:
        """Take a permit's time into account."""
        mean_s = held_s if self._mean_s is None else self._mean_s
        self._mean_s = mean_s + WEIGHT * (held_s - mean_s)

    def retry_after_ms(self, *, n_turns: int, max_active: int) -> int | None:
        """Guess when so many turns are over; ``None`` before any permit came back."""
        if self._mean_s is None:
            return None
        turns_ms = math.ceil(1000 * self._mean_s * n_turns / max_active)
        return min(max(turns_ms, RETRY_AFTER_MIN_MS), RETRY_AFTER_MAX_MS)
