"""A bound of the tokens that are tried in vain, for each sender; pure."""

from collections import OrderedDict

from inferd.limits.bridge import FAILED_TOKEN_S, FAILED_TOKENS, MAX_FAILED_SENDERS


class FailureThrottle:
    """Counts failures by sender; each is forgotten after ``FAILED_TOKEN_S``.

    Bounds:
        Memory: ``MAX_FAILED_SENDERS`` entries.
    """

    def __init__(self) -> None:
        self._full_until: OrderedDict[str, float] = OrderedDict()
        """When each sender's last failure is forgotten."""

    def wait_s(self, sender: str, now: float) -> float:
        """Return the seconds until a sender may try a token; 0 for now."""
        until = self._full_until.get(sender, now)
        return max(0.0, until - now - (FAILED_TOKENS - 1) * FAILED_TOKEN_S)

    def failed(self, sender: str, now: float) -> None:
        """Count a failure."""
        until = max(now, self._full_until.pop(sender, now))
        self._full_until[sender] = until + FAILED_TOKEN_S
        while len(self._full_until) > MAX_FAILED_SENDERS:
            self._full_until.popitem(last=False)
