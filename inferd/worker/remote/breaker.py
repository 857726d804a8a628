"""When a remote that failed is asked again: not for a while, then by one request."""

from collections import deque
from typing import Final

from inferd.config.kinds.remote_limits import FAILURE_WINDOW_S, MAX_FAILURES, OPEN_S

_NEVER: Final = float("-inf")


class Breaker:
    """Closed, open, or half-open; reads no clock.

    ``MAX_FAILURES`` within ``FAILURE_WINDOW_S`` open it for ``OPEN_S``. Then it is half-open:
    one request is let through, and its outcome closes it or opens it again.
    """

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=MAX_FAILURES)
        self._open_until = _NEVER
        self._is_closed = True
        self._trial: int | None = None

    @property
    def is_closed(self) -> bool:
        """Whether all requests are let through."""
        return self._is_closed

    def open_for_s(self, now: float) -> float:
        """Return the seconds for which it stays open; 0 if it is half-open or closed."""
        return 0.0 if self._is_closed else max(0.0, self._open_until - now)

    def admits(self, ticket: int, now: float) -> bool:
        """Tell whether a request is let through; ``succeeded`` or one of the others follows."""
        if self._is_closed:
            return True
        if self._trial is not None or now < self._open_until:
            return False
        self._trial = ticket
        return True

    def succeeded(self) -> None:
        """Note an answer: it closes, and forgets what was before."""
        self._failures.clear()
        self._is_closed = True
        self._trial = None

    def failed(self, ticket: int, now: float) -> bool:
        """Note a failure of the remote; return whether it opened by that."""
        if not self._is_closed:
            if ticket != self._trial:
                return False  # it was asked before the breaker opened
            self._open(now)
            return True
        self._failures.append(now)
        is_full = len(self._failures) == MAX_FAILURES
        if is_full and now - self._failures[0] <= FAILURE_WINDOW_S:
            self._open(now)
            return True
        return False

    def abandoned(self, ticket: int) -> None:
        """Note that a request ended without telling anything of the remote."""
        if ticket == self._trial:
            self._trial = None

    def _open(self, now: float) -> None:
        self._failures.clear()
        self._trial = None
        self._is_closed = False
        self._open_until = now + OPEN_S
