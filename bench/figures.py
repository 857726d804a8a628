"""Rounds to figures: medians, spreads, ratios and goals. Pure arithmetic.

A ratio is made within a round, of two measurements that stand next to each other; the
figure is the median of the rounds' ratios. It is always the daemon's value divided by the
other's, whether more or less is better.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bench.quiet import LOUD

OURS: Final = "inferd"
ALWAYS: Final = (OURS, "peer", "raw")
"""Sides that every figure has, if only as ``null`` with the reason."""
DIGITS: Final = 4
"""Significant digits of what is printed; rounds are kept whole."""


@dataclass(frozen=True)
class Reading:
    """What one round measured."""

    values: Mapping[str, float]
    """Of each side, in the measure's unit."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else was seen, for a person to read."""

    def of_details(self, key: str) -> dict[str, float]:
        """Give what the sides' details have under a key."""
        return {
            side: each[key]
            for side, each in self.details.items()
            if isinstance(each, Mapping) and key in each
        }


@dataclass(frozen=True)
class Round:
    """A reading, and how quiet the machine was."""

    reading: Reading
    others: float
    """Cores that processes which are none of ours used meanwhile."""

    @property
    def is_disturbed(self) -> bool:
        """Whether it says little."""
        return self.others > LOUD

    def as_json(self) -> dict[str, Any]:
        """Give all that was seen."""
        return {
            **self.reading.values,
            "other_cores": round(self.others, 3),
            "disturbed": self.is_disturbed,
            "details": dict(self.reading.details),
        }


@dataclass(frozen=True)
class Goal:
    """What a figure should reach."""

    of: str
    """``inferd``, or ``ratio_`` and a side."""
    at_least: float | None = None
    at_most: float | None = None
    or_raw: float | None = None
    """Ratio to raw llama.cpp from which it counts as reached, too: who is that close to
    the library has nothing left to win over a server that runs on it."""

    def reached(self, medians: Mapping[str, float]) -> bool | None:
        """Tell whether it is; ``None`` where it was not measured."""
        if self.of not in medians:
            return None
        is_close = (
            self.or_raw is not None and medians.get("ratio_raw", 0) >= self.or_raw
        )
        return self._is_met(medians[self.of]) or is_close

    def as_json(self, medians: Mapping[str, float]) -> dict[str, Any]:
        """Give the goal and how it went."""
        bounds = {
            "at_least": self.at_least,
            "at_most": self.at_most,
            "or_ratio_raw_at_least": self.or_raw,
        }
        set_bounds = {
            name: bound for name, bound in bounds.items() if bound is not None
        }
        reached = self.reached(medians)
        by_raw = reached and not self._is_met(medians[self.of])
        return {
            **set_bounds,
            "reached": reached,
            **({"reached_by": "raw"} if by_raw else {}),
        }

    def _is_met(self, value: float) -> bool:
        """Tell whether a value is within the goal's own bounds."""
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )


def figure(
    rounds: Sequence[Round],
    *,
    goals: Sequence[Goal] = (),
    reasons: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Sum up a measure's rounds.

    Args:
        rounds: at least one.
        goals: what its figures should reach.
        reasons: why a side has no value.
    """
    found = summed([dict(each.reading.values) for each in rounds])
    medians = {name: each["median"] for name, each in found["spread"].items()}
    missing = [side for side in ALWAYS if side not in medians]
    reached = {goal.of: goal.as_json(medians) for goal in goals}
    judged = [each["reached"] for each in reached.values()]
    return {
        **found,
        "reasons": {
            side: (reasons or {}).get(side, "not measured in this run")
            for side in missing
        },
        "goals": reached,
        "reached": None if not judged or None in judged else all(judged),
        "n_rounds": len(rounds),
        "disturbed_rounds": sum(each.is_disturbed for each in rounds),
        "rounds": [each.as_json() for each in rounds],
    }


def summed(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Give the medians of each side's values over the rounds, of ratios, and spreads."""
    series = ratios_beside(rounds)
    spreads = {name: spread(values) for name, values in series.items()}
    medians = {name: each["median"] for name, each in spreads.items()}
    return {
        **{side: medians.get(side) for side in ALWAYS},
        **{f"ratio_{side}": medians.get(f"ratio_{side}") for side in ALWAYS[1:]},
        **{name: value for name, value in medians.items() if name not in ALWAYS},
        "spread": spreads,
    }


def ratios_beside(rounds: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Give the values of each name over the rounds, and those of the ratios.

    A side that lacks a round has no series: medians of different rounds do not compare.
    """
    with_ratios = [
        {
            **values,
            **{
                f"ratio_{side}": values[OURS] / value
                for side, value in values.items()
                if OURS in values and side != OURS and value
            },
        }
        for values in rounds
    ]
    names = [
        name for name in with_ratios[0] if all(name in each for each in with_ratios)
    ]
    return {name: [each[name] for each in with_ratios] for name in names}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Give the middle of some values and their ends."""
    return {
        "median": significant(statistics.median(values)),
        "min": significant(min(values)),
        "max": significant(max(values)),
    }


def significant(value: float) -> float:
    """Round to the digits that are worth printing."""
    return float(f"{value:.{DIGITS}g}")
