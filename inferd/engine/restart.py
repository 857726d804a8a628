"""May a worker start again, and when? Backoff and breaker, without a clock.

Only deaths without a served request since the last start count: a worker that serves and
then dies starts again at once, one that dies before it is of any use is given pauses, and
at last a long one.

    n deaths in a row         pause
    0 (it had served)         none
    1 … breaker_deaths - 1    0.1 s, doubled each time, up to 10 s
    breaker_deaths and more   the breaker opens for breaker_open_s, then one more start
"""

from dataclasses import dataclass

from inferd.limits import RESTART_BACKOFF_MAX_S, RESTART_BACKOFF_S

_MOST_DOUBLINGS = 32
"""Far beyond the longest pause, and small enough for a float."""


@dataclass(frozen=True, slots=True)
class Pause:
    """What to do after a death."""

    seconds: float
    """Until the next start."""
    breaker_is_open: bool
    """Whether requests are refused meanwhile, rather than kept waiting."""


class RestartPolicy:
    """Counts the deaths of one backend's workers."""

    def __init__(self, *, breaker_deaths: int, breaker_open_s: float) -> None:
        self._breaker_deaths = breaker_deaths
        self._breaker_open_s = breaker_open_s
        self._in_vain = 0

    def died(self, *, had_served: bool) -> Pause:
        """Take note of a death; say how long to wait.

        Args:
            had_served: whether this worker ended a request before it died.
        """
        self._in_vain = 0 if had_served else self._in_vain + 1
        if self._in_vain >= self._breaker_deaths:
            return Pause(self._breaker_open_s, breaker_is_open=True)
        if self._in_vain == 0:
            return Pause(0.0, breaker_is_open=False)
        doubled = RESTART_BACKOFF_S * 2 ** min(self._in_vain - 1, _MOST_DOUBLINGS)
        return Pause(min(doubled, RESTART_BACKOFF_MAX_S), breaker_is_open=False)
