"""Bound the time for accepting clients in one pass of the event loop.

The kernel's queue of a socket is first come, first served. At the beginning of a flood
clients are accepted faster, since somebody else may wait behind it. Later they are not,
since passes that take long delay all who are connected.
"""

from inferd.limits.server import (
    ACCEPT_BURST_INTERVAL_S,
    ACCEPT_BURST_PASS_S,
    ACCEPT_BURST_S,
    ACCEPT_PASS_S,
)


class AcceptBudget:
    """Budget of processor time for accepting, as a token bucket.

    Bounds:
        ``ACCEPT_PASS_S`` in each pass; ``ACCEPT_BURST_PASS_S`` while the bucket lasts. It
        holds ``ACCEPT_BURST_S``, and is filled within ``ACCEPT_BURST_INTERVAL_S``.
    """

    def __init__(self) -> None:
        self._left_s = ACCEPT_BURST_S
        self._at = 0.0

    def pass_s(self, now: float) -> float:
        """Tell how many seconds accepting may take in this pass.

        Args:
            now: seconds on a monotonic clock, not of processor time.
        """
        gained_s = (now - self._at) * ACCEPT_BURST_S / ACCEPT_BURST_INTERVAL_S
        self._left_s = min(ACCEPT_BURST_S, self._left_s + gained_s)
        self._at = now
        return min(ACCEPT_BURST_PASS_S, ACCEPT_PASS_S + self._left_s)

    def spend(self, seconds: float) -> None:
        """Note what accepting has taken in a pass."""
        self._left_s = max(0.0, self._left_s - max(0.0, seconds - ACCEPT_PASS_S))
