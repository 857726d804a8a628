"""How long a client to which nothing is being answered may take."""

import math
from typing import Final

from inferd.config import LimitSettings

LOOKS_PER_IDLE_TIME: Final = 4
"""How often places are looked at in ``idle_s``, once a connection has idled for so long."""


class Patience:
    """With one client, from when it has nothing to be answered until it has again.

    Args:
        now: seconds, on the clock of all the times here.
    """

    def __init__(self, now: float) -> None:
        self._since = now
        self._state: tuple[int | None, bool] = (None, False)

    def deadline(
        self,
        limits: LimitSettings,
        line: int | None,
        *,
        is_held_up: bool,
        now: float,
    ) -> float:
        """Tell until when to wait for more.

        Args:
            limits: as they are now.
            line: the number of the line that has begun and not ended, if there is one.
            is_held_up: whether it is not read on for now.
            now: the time.
        """
        if self._state != (line, is_held_up):
            self._state, self._since = (line, is_held_up), now
        if is_held_up:
            return math.inf
        if line is not None:
            return self._since + limits.line_timeout_s
        first = self._since + limits.idle_s
        return first if now < first else now + limits.idle_s / LOOKS_PER_IDLE_TIME
