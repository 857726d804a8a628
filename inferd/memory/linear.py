"""Linear models of memory sizes, and their fit to measured samples."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Annotated

from msgspec import Meta, Struct

MAX_PLAUSIBLE_BYTES = 2**62
"""More than any machine has."""

Size = Annotated[int, Meta(ge=0, le=MAX_PLAUSIBLE_BYTES)]
"""Bytes that a worker reports: more than any machine has are implausible."""


class LinearSize(Struct, frozen=True, kw_only=True):
    """Bytes as a linear function of slots and tokens, per slot or for all together."""

    fixed: Annotated[int, Meta(ge=-MAX_PLAUSIBLE_BYTES, le=MAX_PLAUSIBLE_BYTES)] = 0
    per_slot: Size = 0
    per_token: Size = 0

    def at(self, n_slots: int, n_tokens: int) -> int:
        """Return the bytes for a number of slots and of tokens."""
        return self.fixed + self.per_slot * n_slots + self.per_token * n_tokens

    def __add__(self, other: "LinearSize") -> "LinearSize":
        return LinearSize(
            fixed=self.fixed + other.fixed,
            per_slot=self.per_slot + other.per_slot,
            per_token=self.per_token + other.per_token,
        )


class Sample(Struct, frozen=True):
    """Bytes measured with a number of slots and of tokens."""

    n_slots: int
    n_tokens: int
    n_bytes: int


def upper_bound(samples: Sequence[Sample]) -> LinearSize:
    """Fit the least linear function that no sample exceeds; exact for linear samples.

    Between samples it is an upper bound of any convex function through them.
    """
    per_token = _slope(
        (b.n_tokens - a.n_tokens, b.n_bytes - a.n_bytes)
        for a, b in combinations(samples, 2)
        if a.n_slots == b.n_slots
    )
    per_slot = _slope(
        (b.n_slots - a.n_slots, b.n_bytes - a.n_bytes)
        for a, b in combinations(samples, 2)
        if a.n_tokens == b.n_tokens
    )
    slopes = LinearSize(per_slot=per_slot, per_token=per_token)
    fixed = max(
        sample.n_bytes - slopes.at(sample.n_slots, sample.n_tokens)
        for sample in samples
    )
    return LinearSize(fixed=fixed, per_slot=per_slot, per_token=per_token)


def _slope(rises: Iterable[tuple[int, int]]) -> int:
    """Return the slope between the two farthest apart, rounded up; at least 0."""
    run, rise = max(((abs(x), y if x > 0 else -y) for x, y in rises), default=(0, 0))
    return max(0, -(-rise // run)) if run else 0
