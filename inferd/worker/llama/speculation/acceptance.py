"""Choose how many tokens to draft, by their acceptance rate and their cost."""

from typing import Final

from inferd.limits.worker import DRAFT_COST, PROBE_STEPS

__all__ = ["AcceptanceRate", "BatchCosts"]

_INITIAL_RATE: Final = 0.8
"""Acceptance rate that is assumed before any draft was tested."""
_WEIGHT: Final = 0.1
"""Weight of one tested draft in the acceptance rate."""
_SIZE_WEIGHT: Final = 0.2
"""Weight of one batch in the cost of its size."""
_SIZES: Final = 128
"""Largest batch in tokens whose time is recorded."""


class BatchCosts:
    """Measured durations of batches by size, relative to a batch of one token.

    They are not linear: four tokens may take no longer than three. An unknown size is
    extrapolated from the next smaller known one.

    Bounds:
        ``_SIZES`` numbers.
    """

    def __init__(self) -> None:
        self._step_s = 0.0
        self._steps: dict[int, float] = {1: 1.0}
        self.draft_round_s = 0.0
        """Seconds for drafting one token for each sequence."""

    def observe(self, n_tokens: int, seconds: float) -> None:
        """Record a batch that held no prompt tokens."""
        if n_tokens > _SIZES:
            return
        steps = self.of_batch(n_tokens)
        step_s = seconds / steps
        # The larger the batch, the less it changes the estimate for a single token.
        weight = _WEIGHT / n_tokens if self._step_s else 1
        self._step_s += weight * (step_s - self._step_s)
        if n_tokens > 1 and self._step_s:
            steps += _SIZE_WEIGHT * (seconds / self._step_s - steps)
            self._steps[n_tokens] = min(n_tokens, max(1.0, steps))

    def of_batch(self, n_tokens: int) -> float:
        """Return the duration of a batch of ``n_tokens``, relative to one token."""
        if (known := self._steps.get(n_tokens)) is not None:
            return known
        smaller = max(size for size in self._steps if size < n_tokens)
        steps = self._steps[smaller]
        each = (steps - 1) / (smaller - 1) if smaller > 1 else DRAFT_COST
        return steps + each * (n_tokens - smaller)

    @property
    def of_round(self) -> float:
        """Relative duration of drafting one token for each sequence."""
        return self.draft_round_s / self._step_s if self._step_s else 0.0


class AcceptanceRate:
    """Acceptance rate of one sequence's drafts, and the draft length that follows from it.

    Laws (held by property tests): the higher the rate, the longer the drafts; the more
    streams, the shorter; drafts that are not expected to save time are not made, except for
    one token after ``PROBE_STEPS`` without any.
    """

    def __init__(self) -> None:
        self._rate = _INITIAL_RATE
        self._n_without = 0

    def observe(self, n_drafted: int, n_accepted: int) -> None:
        """Record tested drafts; those after a wrong one were not tested."""
        for is_accepted in [1] * n_accepted + [0] * (n_drafted > n_accepted):
            self._rate += _WEIGHT * (is_accepted - self._rate)
        self._n_without = 0

    def n_drafts(self, costs: BatchCosts, *, n_streams: int, at_most: int) -> int:
        """Return the tokens to draft for the next batch; called once per batch."""
        n_best = self._n_worthwhile(costs, n_streams, at_most)
        self._n_without += 1
        if n_best or self._n_without <= PROBE_STEPS:
            return n_best
        return min(1, at_most)

    def _n_worthwhile(self, costs: BatchCosts, n_streams: int, at_most: int) -> int:
        """Find the draft length with the highest rate of tokens, if all streams use it."""
        n_tokens = likelihood = 1.0
        best, n_best = n_tokens / costs.of_batch(n_streams), 0
        for n in range(1, at_most + 1):
            likelihood *= self._rate
            n_tokens += likelihood
            steps = costs.of_batch(n_streams * (1 + n)) + costs.of_round * n
            if n_tokens / steps > best:
                best, n_best = n_tokens / steps, n
        return n_best
