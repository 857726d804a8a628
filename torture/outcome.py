"""What an item of the list is given, and what it found."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

MS: Final = 1000.0
"""Milliseconds of a second."""
HUNDREDTHS: Final = 100


class Size(StrEnum):
    """How much is done."""

    SHORT = "short"
    """Seconds: what the tests run."""
    FULL = "full"
    """Minutes: what is published."""


class Verdict(StrEnum):
    """How an item ended."""

    HELD = "held"
    BROKEN = "broken"
    SKIPPED = "skipped"


class SkippedError(Exception):
    """This machine lacks what the item takes; its text says what."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is reported of one item."""

    item: str
    """Its number on the list."""
    name: str
    size: Size
    seed: int
    verdict: Verdict
    reason: str = ""
    """What broke, or why it was skipped."""
    counts: dict[str, int]
    figures: dict[str, float]
    """Measurements; the unit ends the name."""
    notes: list[str]
    """What else a reader has to know: parts that were left out, words of other programs."""
    seconds: float
    began: str
    """UTC, as RFC 3339 has it."""
    commit: str
    machine: dict[str, str | int] = {}
    """That of the item, where it is known."""


@dataclass
class Context:
    """What an item is given, and fills.

    Args:
        size: how much to do.
        seed: of everything that is drawn.
    """

    size: Size
    seed: int
    counts: dict[str, int] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @cached_property
    def rng(self) -> random.Random:
        """Everything that is drawn comes from here."""
        return random.Random(self.seed)

    def pick(self, *, short: T, full: T) -> T:
        """Give what goes with the size."""
        return short if self.size is Size.SHORT else full

    def require(self, is_so: object, otherwise: str) -> None:
        """Take note of a promise that was not kept."""
        if not is_so:
            self.problems.append(otherwise)

    def expect(self, is_so: object, otherwise: str) -> None:
        """Take note of what breaks the full item alone.

        That is what is known not to be so yet, and what a busy machine cannot hold.
        """
        if not is_so:
            notes = self.pick(short=self.notes, full=self.problems)
            notes.append(otherwise)

    def require_within(self, ms: float, max_ms: float, name: str) -> None:
        """Bound how long something took, in the full item alone.

        The machine of the tests may be slow, or do anything else at the same time.
        """
        text = f"{name}: {ms:.1f} ms, over {max_ms:.0f}"
        self.expect(ms < max_ms, text)

    def measure(self, name: str, seconds: Sequence[float]) -> None:
        """Report how long things took, in milliseconds: half of them, nearly all, all.

        Args:
            name: of what took so long.
            seconds: one for each; nothing is reported of none.
        """
        if not seconds:
            return
        for share in (50, 99):
            self.figures[f"{name}_p{share}_ms"] = rounded(percentile(seconds, share))
        self.figures[f"{name}_max_ms"] = rounded(max(seconds))


def percentile(values: Sequence[float], share: int) -> float:
    """Give the least value that so many hundredths of all do not pass."""
    ordered = sorted(values)
    rank = -(-len(ordered) * share // HUNDREDTHS)
    return ordered[max(0, rank - 1)]


def rounded(seconds: float) -> float:
    """Give milliseconds, to a tenth."""
    return round(seconds * MS, 1)
