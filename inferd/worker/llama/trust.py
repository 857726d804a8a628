"""How many tokens to guess ahead: by how many came true, and by what they cost."""

from typing import Final

from inferd.worker.limits import DRAFT_COST, PROBE_STEPS

__all__ = ["Costs", "Trust"]

_FIRST: Final = 0.8
"""Share of guesses that are believed to come true before any was made."""
_WEIGHT: Final = 0.1
"""What one guess changes of that belief."""
_SIZE_WEIGHT: Final = 0.2
"""What one batch changes of what is known of its size."""
_SIZES: Final = 128
"""Tokens of the largest batch whose time is remembered."""


class Costs:
    """How long batches take, in steps of one token.

    That is no straight line: four tokens may take no longer than three. Of a size that has
    not been seen it is thought that its tokens take what those of the next smaller one did.

    Bounds:
        ``_SIZES`` numbers.
    """

    def __init__(self) -> None:
        self._step_s = 0.0
        self._steps: dict[int, float] = {1: 1.0}
        self.round_s = 0.0
        """Seconds that guessing one token for each sequence takes."""

    def observe(self, n_tokens: int, seconds: float) -> None:
        """Take note of a batch that had no part of a prompt in it."""
        if n_tokens > _SIZES:
            return
        steps = self.of_batch(n_tokens)
        step_s = seconds / steps
        # The larger the batch, the less it tells of a step, and the more of its own size.
        weight = _WEIGHT / n_tokens if self._step_s else 1
        self._step_s += weight * (step_s - self._step_s)
        if n_tokens > 1 and self._step_s:
            steps += _SIZE_WEIGHT * (seconds / self._step_s - steps)
            self._steps[n_tokens] = min(n_tokens, max(1.0, steps))

    def of_batch(self, n_tokens: int) -> float:
        """Tell how long a batch of so many tokens takes."""
        if (known := self._steps.get(n_tokens)) is not None:
            return known
        smaller = max(size for size in self._steps if size < n_tokens)
        steps = self._steps[smaller]
        each = (steps - 1) / (smaller - 1) if smaller > 1 else DRAFT_COST
        return steps + each * (n_tokens - smaller)

    @property
    def of_round(self) -> float:
        """Tell how long it takes to guess a token each for all."""
        return self.round_s / self._step_s if self._step_s else 0.0


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
        n_tokens = likelihood = 1.0
        best, n_best = n_tokens / costs.of_batch(n_streams), 0
        for n in range(1, at_most + 1):
            likelihood *= self._share
            n_tokens += likelihood
            steps = costs.of_batch(n_streams * (1 + n)) + costs.of_round * n
            if n_tokens / steps > best:
                best, n_best = n_tokens / steps, n
        return n_best
