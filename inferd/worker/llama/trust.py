"""How many tokens to guess ahead: by how many came true, and by what they cost."""

from typing import Final

from inferd.worker.limits import DRAFT_COST, PROBE_STEPS

__all__ = ["Costs", "Trust"]

_FIRST: Final = 0.8
"""Share of guesses that are believed to come true before any was made."""
_WEIGHT: Final = 0.1
"""What one guess changes of that belief."""
_MEMORY: Final = 0.97
"""What is left of a batch's weight after the next: some 30 of them count."""
_COST_MIN: Final = 0.01
_COST_MAX: Final = 1.0
_BELIEF: Final = 0.2
"""Weight of each batch that stands for what is believed beforehand."""
_FAR: Final = 4
"""Tokens beyond the first of the larger one of them."""


class Costs:
    """What a token more in a batch takes, in steps of one token.

    A straight line through the last batches, and through two that are made up and say
    ``DRAFT_COST``; they decide where all batches are of one size.
    """

    def __init__(self) -> None:
        self._n = self._x = self._xx = self._t = self._xt = 0.0
        self.round_s = 0.0
        """Seconds that guessing one token for each sequence takes."""

    def observe(self, n_tokens: int, seconds: float) -> None:
        """Take note of a batch that had no part of a prompt in it."""
        x = n_tokens - 1
        sums = (self._n, self._x, self._xx, self._t, self._xt)
        new = (1, x, x * x, seconds, x * seconds)
        self._n, self._x, self._xx, self._t, self._xt = (
            _MEMORY * sum_ + value for sum_, value in zip(sums, new, strict=True)
        )

    @property
    def of_token(self) -> float:
        """A token more in a batch."""
        return self._line()[1]

    @property
    def of_draft(self) -> float:
        """Guessing a token each for all."""
        step_s, _ = self._line()
        return self.round_s / step_s if step_s else 0.0

    def _line(self) -> tuple[float, float]:
        """Fit: seconds of a step of one token, and the cost of one more."""
        if not self._t:
            return 0.0, DRAFT_COST
        believed_s = self._t / (self._n + DRAFT_COST * self._x)
        far_s = believed_s * (1 + DRAFT_COST * _FAR)
        n, x = self._n + 2 * _BELIEF, self._x + _BELIEF * _FAR
        xx = self._xx + _BELIEF * _FAR * _FAR
        t = self._t + _BELIEF * (believed_s + far_s)
        xt = self._xt + _BELIEF * _FAR * far_s
        slope_s = (n * xt - x * t) / (n * xx - x * x)
        step_s = (t - slope_s * x) / n
        if step_s <= 0:
            return believed_s, _COST_MAX
        return step_s, min(_COST_MAX, max(_COST_MIN, slope_s / step_s))


class Trust:
    """How far the guesses for one sequence are believed.

    Laws (held by property tests): the more of them come true the more are made, the
    more streams there are the fewer; none are made that are not believed to gain time,
    but for one after ``PROBE_STEPS`` without any.
    """

    def __init__(self) -> None:
        self._share = _FIRST
        self._n_without = 0

    def observe(self, n_guessed: int, n_true: int) -> None:
        """Take note of guesses that were put to the test; behind a wrong one none was."""
        for is_true in [1] * n_true + [0] * (n_guessed > n_true):
            self._share += _WEIGHT * (is_true - self._share)
        self._n_without = 0

    def n_guesses(self, costs: Costs, *, n_streams: int, at_most: int) -> int:
        """Tell how many tokens to guess for the next batch; asked once for each."""
        n_best = self._n_worthwhile(costs, n_streams, at_most)
        self._n_without += 1
        if n_best or self._n_without <= PROBE_STEPS:
            return n_best
        return min(1, at_most)

    def _n_worthwhile(self, costs: Costs, n_streams: int, at_most: int) -> int:
        """Find the number for which tokens come soonest, if all streams have as many."""
        token, draft = costs.of_token, costs.of_draft
        n_tokens = likelihood = 1.0
        seconds = 1 + token * (n_streams - 1)
        for n in range(at_most):
            likelihood *= self._share
            more_s = token * n_streams + draft
            if (n_tokens + likelihood) / (seconds + more_s) <= n_tokens / seconds:
                return n
            n_tokens += likelihood
            seconds += more_s
        return at_most
