"""When a download counts as stalled."""

from inferd.limits.models import PULL_STALL_BYTES, PULL_STALL_S


class StallWatch:
    """Watches that a download brings enough bytes in each period.

    Args:
        now: seconds of any clock that does not jump.
        period_s: seconds.
        least_bytes: in a period.
    """

    def __init__(
        self,
        now: float,
        period_s: float = PULL_STALL_S,
        least_bytes: int = PULL_STALL_BYTES,
    ) -> None:
        self._period_s = period_s
        self._least_bytes = least_bytes
        self._began = now
        self._n_bytes = 0

    def is_stalled(self, now: float, n_bytes: int) -> bool:
        """Tell whether too little came in the period that has ended.

        Args:
            now: seconds of the same clock.
            n_bytes: that came since the last call.
        """
        self._n_bytes += n_bytes
        if now - self._began < self._period_s:
            return False
        is_stalled = self._n_bytes < self._least_bytes
        self._began, self._n_bytes = now, 0
        return is_stalled
