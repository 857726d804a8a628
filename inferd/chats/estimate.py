"""How long an answer waits, from how long the latest ones took; pure."""


class DurationEstimate:
    """Estimates how long an answer waits, from how long the latest ones took; pure."""

    def __init__(self) -> None:
        self._mean_s: float | None = None

    def add(self, seconds: float) -> None:
        """Count an answer."""
        before = self._mean_s
        self._mean_s = seconds if before is None else before * 0.75 + seconds * 0.25

    def of(self, position: int) -> float | None:
        """Return the seconds that an answer at a position waits; ``None`` if unknown."""
        return None if self._mean_s is None else round(self._mean_s * position, 1)
