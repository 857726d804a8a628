"""What may be asked of a backend in a minute and in a day, so that its bill has a bound; pure.

Minutes and days are those of UTC. A request counts when it begins to run. Its tokens are
reserved then, and replaced at its end by those that it has used; one that runs past midnight
counts for the day of its end.
"""

from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct

from inferd.limits.admission import BUDGET_RESERVED_RETRY_S

MINUTE_S: Final = 60
DAY_S: Final = 86_400

Number = Annotated[int, Meta(ge=0)]


class BudgetLimits(NamedTuple):
    """The bounds of one backend; ``None`` for none."""

    requests_per_minute: int | None = None
    tokens_per_day: int | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether there is any."""
        return self != (None, None)


class BudgetUse(Struct, frozen=True, forbid_unknown_fields=True):
    """What has been used of a budget, as it is kept."""

    minute: Number = 0
    """The last one in which a request began, since 1970."""
    requests: Number = 0
    """Requests that began in it."""
    day: Number = 0
    """The last one in which tokens were used, since 1970."""
    tokens: Number = 0
    """Tokens that were used in it, with those that running requests may use."""


def is_plausible(use: BudgetUse, now_s: float) -> bool:
    """Tell whether what was kept is at most a day ahead of the clock."""
    next_s = now_s + DAY_S
    return use.minute <= next_s // MINUTE_S and use.day <= next_s // DAY_S


class BudgetRefusal(NamedTuple):
    """Why a request does not fit a budget."""

    key: str
    """The setting with the bound."""
    bound: int
    retry_after_s: float | None
    """Seconds until it may fit; ``None`` if it never does."""


class Budget:
    """The budget of one backend.

    A clock that is set back changes nothing: no minute and no day begins a second time.

    Args:
        limits: may change at any time.
        use: what was used before.
    """

    def __init__(self, limits: BudgetLimits, use: BudgetUse | None = None) -> None:
        use = use or BudgetUse()
        self.limits = limits
        self._minute, self._n_requests = use.minute, use.requests
        self._day, self._n_used = use.day, use.tokens
        self._n_reserved = 0

    def use(self, now_s: float) -> BudgetUse:
        """Return what to keep; what is reserved counts as used until it is settled."""
        self._begin(now_s)
        n_tokens = self._n_used + self._n_reserved
        return BudgetUse(self._minute, self._n_requests, self._day, n_tokens)

    def left(self, now_s: float) -> BudgetLimits:
        """Return the requests of this minute and the tokens of today that are left."""
        self._begin(now_s)
        requests, tokens = self.limits
        return BudgetLimits(
            None if requests is None else max(0, requests - self._n_requests),
            None
            if tokens is None
            else max(0, tokens - self._n_used - self._n_reserved),
        )

    def refusal(self, n_tokens: int, now_s: float) -> BudgetRefusal | None:
        """Return why a request does not fit now; ``None`` if it does.

        Args:
            n_tokens: that it may use; at least 1 is compared.
            now_s: seconds since 1970.
        """
        left, (requests, tokens) = self.left(now_s), self.limits
        if left.requests_per_minute == 0 and requests is not None:
            wait_s = (self._minute + 1) * MINUTE_S - now_s
            return BudgetRefusal("max_requests_per_minute", requests, wait_s)
        if left.tokens_per_day is None or tokens is None:
            return None
        n_tokens = max(1, n_tokens)
        if n_tokens <= left.tokens_per_day:
            return None
        if n_tokens > tokens:
            return BudgetRefusal("max_tokens_per_day", tokens, None)
        until_midnight_s = (self._day + 1) * DAY_S - now_s
        fits_later = self._n_used + n_tokens <= tokens
        return BudgetRefusal(
            "max_tokens_per_day",
            tokens,
            min(BUDGET_RESERVED_RETRY_S, until_midnight_s)
            if fits_later
            else until_midnight_s,
        )

    def reserve(self, n_tokens: int, now_s: float) -> None:
        """Count a request that begins, and reserve its tokens."""
        self._begin(now_s)
        self._n_requests += 1
        self._n_reserved += n_tokens

    def settle(self, n_reserved: int, n_used: int, now_s: float) -> None:
        """Count the tokens that a request has used in place of those that it reserved."""
        self._begin(now_s)
        self._n_reserved -= n_reserved
        self._n_used += n_used

    def _begin(self, now_s: float) -> None:
        minute, day = int(now_s // MINUTE_S), int(now_s // DAY_S)
        if minute > self._minute:
            self._minute, self._n_requests = minute, 0
        if day > self._day:
            self._day, self._n_used = day, 0
