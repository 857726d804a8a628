"""Timeouts of a client for which no request is being answered."""

import math
from typing import Final

from inferd.config.settings import LimitSettings

IDLE_CHECKS_PER_TIMEOUT: Final = 4
"""Checks in ``idle_s`` whether connections are scarce, after the first ``idle_s``."""


class ReadTimeout:
    """Deadline for the next request of a client, from when it has none to be answered.

    Args:
        now: seconds, on the clock of all the times here.
    """

    def __init__(self, now: float) -> None:
        self._started_at = now
        self._state: tuple[int | None, bool] = (None, False)

    def deadline(
        self,
        limits: LimitSettings,
        line: int | None,
        *,
        is_paused: bool,
        now: float,
    ) -> float:
        """Compute how long to wait for more input.

        Args:
            limits: the current ones.
            line: the number of the unfinished line, if there is one.
            is_paused: whether reading of that line is paused by the daemon.
            now: the time.
        """
        if self._state != (line, is_paused):
            self._state, self._started_at = (line, is_paused), now
        if is_paused:
            return math.inf
        if line is not None:
            return self._started_at + limits.line_timeout_s
        idle_end = self._started_at + limits.idle_s
        if now < idle_end:
            return idle_end
        return now + limits.idle_s / IDLE_CHECKS_PER_TIMEOUT
