"""Restart policy of workers: backoff and circuit breaker, without a clock.

Only deaths without a served request since the last start count: a worker that served a
request and then dies is restarted at once; one that dies before that is restarted after
growing delays, and at last a long one.

    n deaths in a row         delay
    0 (it had served)         none
    1 … breaker_deaths - 1    0.1 s, doubled each time, up to 10 s
    breaker_deaths and more   the breaker opens for breaker_open_s, then one more start
"""

from dataclasses import dataclass

from inferd.limits.engine import RESTART_BACKOFF_MAX_S, RESTART_BACKOFF_S

_MAX_DOUBLINGS = 32
"""Far beyond the longest delay, and small enough for a float."""


@dataclass(frozen=True, slots=True)
class RestartDelay:
    """How long to wait before a restart."""

    seconds: float
    """Seconds until the restart."""
    breaker_is_open: bool
    """Whether requests are refused meanwhile, instead of queued."""


class RestartPolicy:
    """Counter of the consecutive deaths of one backend's workers."""

    def __init__(self, *, breaker_deaths: int, breaker_open_s: float) -> None:
        self._breaker_deaths = breaker_deaths
        self._breaker_open_s = breaker_open_s
        self._n_deaths = 0

    def died(self, *, had_served: bool) -> RestartDelay:
        """Note a death; return the delay before the restart.

        Args:
            had_served: whether this worker finished a request before it died.
        """
        self._n_deaths = 0 if had_served else self._n_deaths + 1
        if self._n_deaths >= self._breaker_deaths:
            return RestartDelay(self._breaker_open_s, breaker_is_open=True)
        if self._n_deaths == 0:
            return RestartDelay(0.0, breaker_is_open=False)
        doubled = RESTART_BACKOFF_S * 2 ** min(self._n_deaths - 1, _MAX_DOUBLINGS)
        return RestartDelay(min(doubled, RESTART_BACKOFF_MAX_S), breaker_is_open=False)
