"""How much one principal, and all of them, may ask of the helper; pure."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from inferd.bridge.identity.share import SharedLimit
from inferd.limits.bridge import MAX_HELPER_REQUESTS
from inferd.management.policy import HelperRefusedError

HOUR_S: Final = 3600.0


def half(n: int) -> int:
    """Return what one principal may have of ``n``: half of them, and one at least."""
    return (n + 1) // 2


class HelperShares:
    """Counts what is asked.

    Args:
        pulls_per_hour: that are begun.

    Bounds:
        Memory: ``pulls_per_hour`` entries, and one for each request.
    """

    def __init__(self, pulls_per_hour: int) -> None:
        self._pulls_per_hour = pulls_per_hour
        self._running = SharedLimit(MAX_HELPER_REQUESTS)
        self._pulls: deque[tuple[float, str]] = deque()
        """When pulls of the last hour were begun, and by whom."""
        self._is_pulling = False

    @property
    def n_requests(self) -> int:
        """Requests that are carried out now."""
        return self._running.total

    @contextmanager
    def request(self, principal: str) -> Iterator[None]:
        """Count a request while inside.

        Raises:
            HelperRefusedError: there are too many, or of this principal.
        """
        if not self._running.take(principal):
            raise HelperRefusedError(
                "busy",
                f"the helper carries out {self._running.limit} requests at once, "
                f"{self._running.share} of them of one token",
                retry_after_s=1.0,
            )
        try:
            yield
        finally:
            self._running.give_back(principal)

    @contextmanager
    def pull(self, principal: str, now: float) -> Iterator[None]:
        """Count a pull, of which one runs at a time.

        Args:
            principal: who asks for it.
            now: seconds of any clock that only goes on.

        Raises:
            HelperRefusedError: another one runs, or too many were begun in the last hour.
        """
        if self._is_pulling:
            raise HelperRefusedError(
                "busy",
                "another pull is running; one runs at a time",
                retry_after_s=10.0,
            )
        self._begin(principal, now)
        self._is_pulling = True
        try:
            yield
        finally:
            self._is_pulling = False

    def _begin(self, principal: str, now: float) -> None:
        while self._pulls and self._pulls[0][0] <= now - HOUR_S:
            self._pulls.popleft()
        own = [begun for begun, by in self._pulls if by == principal]
        share = half(self._pulls_per_hour)
        if len(own) >= share or len(self._pulls) >= self._pulls_per_hour:
            oldest = own[0] if len(own) >= share else self._pulls[0][0]
            raise HelperRefusedError(
                "busy",
                f"the helper begins {self._pulls_per_hour} pulls an hour, {share} of them "
                "for one token",
                retry_after_s=oldest + HOUR_S - now,
            )
        self._pulls.append((now, principal))
