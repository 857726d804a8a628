"""Bytes that grow in proportion, and the line through some that were measured."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Annotated

from msgspec import Meta, Struct

MOST_BYTES = 2**62
"""What no machine has."""

Size = Annotated[int, Meta(ge=0, le=MOST_BYTES)]
"""Bytes that a worker tells of: more than any machine has are a lie."""


class Line(Struct, frozen=True, kw_only=True):
    """Bytes that grow with the slots, and with tokens: of one slot, or of all together."""

    fixed: Annotated[int, Meta(ge=-MOST_BYTES, le=MOST_BYTES)] = 0
    per_slot: Size = 0
    per_token: Size = 0

    def at(self, n_slots: int, n_tokens: int) -> int:
        """Tell the bytes for so many slots, and tokens."""
        return self.fixed + self.per_slot * n_slots + self.per_token * n_tokens

    def __add__(self, other: "Line") -> "Line":
        return Line(
            fixed=self.fixed + other.fixed,
            per_slot=self.per_slot + other.per_slot,
            per_token=self.per_token + other.per_token,
        )


class Sample(Struct, frozen=True):
    """Bytes for so many slots, and tokens."""

    n_slots: int
    n_tokens: int
    n_bytes: int


def line_over(samples: Sequence[Sample]) -> Line:
    """Draw a line that no sample is above, and those of a true line are on.

    Between samples it is no lower than anything that grows faster and faster.
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
    slopes = Line(per_slot=per_slot, per_token=per_token)
    fixed = max(
        sample.n_bytes - slopes.at(sample.n_slots, sample.n_tokens)
        for sample in samples
    )
    return Line(fixed=fixed, per_slot=per_slot, per_token=per_token)


def _slope(rises: Iterable[tuple[int, int]]) -> int:
    """Give the slope between the two that are farthest apart, rounded up; never down."""
    run, rise = max(((abs(x), y if x > 0 else -y) for x, y in rises), default=(0, 0))
    return max(0, -(-rise // run)) if run else 0
