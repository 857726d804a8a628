"""Which requests are sent again, and when: a decision without a clock or randomness."""

from dataclasses import dataclass
from typing import Final, Self

from inferd.client.core.failures import (
    BackendUnavailable,
    ClientError,
    QueueFull,
    UnreadError,
)

MAX_RETRIES: Final = 2
"""Refused requests that are sent again unless the caller says otherwise, so that a short
queue is no error; a daemon that is busy for longer is told to the caller."""
FIRST_PAUSE_S: Final = 0.5
"""Seconds before the first retry where the refusal has no time; each later one doubles it."""
MAX_PAUSE_S: Final = 30.0
"""Longest pause in seconds. A refusal that says to come back later than that is not retried:
who waits for so long should know of it."""


@dataclass
class Retries:
    """The retries of one request.

    Args:
        n_left: how many may follow.
    """

    n_left: int = MAX_RETRIES
    _pause_s: float = FIRST_PAUSE_S
    _was_unread: bool = False

    @classmethod
    def none(cls) -> Self:
        """Return those of a request that cannot be sent again."""
        return cls(0, _was_unread=True)

    def pause_after(self, error: ClientError) -> float | None:
        """Return the seconds to wait before the request is sent again.

        Only a refusal is retried: an error that came before any other frame. A request that
        the daemon closed the connection on without reading it, as an idle connection may end
        in that very moment, is sent once more at once.

        Returns:
            The seconds; ``None`` if it is not to be sent again.
        """
        if isinstance(error, UnreadError) and not self._was_unread:
            self._was_unread = True
            return 0.0
        if not isinstance(error, QueueFull | BackendUnavailable) or self.n_left <= 0:
            return None
        pause = self._pause_s if error.retry_after is None else error.retry_after
        if pause > MAX_PAUSE_S:
            return None
        self.n_left -= 1
        self._pause_s = min(2 * self._pause_s, MAX_PAUSE_S)
        return pause
