"""Run measures round by round, and keep what comes of each."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.figures import Reading, Round, figure, summed
from bench.lab import Lab, Measure
from bench.load.speech import ServerError
from bench.peers.server_py import UnavailableError
from bench.quiet import undisturbed
from bench.streams import TooShortError
from inferd.client.exchange import ClientError

FAILURES = (
    *(ServerError, UnavailableError, TooShortError, ClientError),
    *(OSError, SystemExit, ValueError, LookupError),
)
"""What may become of a measure; the others go on."""


@dataclass(frozen=True)
class Rounds:
    """How often."""

    n_rounds: int
    tries: int
    """At a quiet moment, for each round."""
    growth_rounds: int
    only: frozenset[str] = frozenset()
    """Keys to measure; none for all."""

    def wants(self, key: str) -> bool:
        """Tell whether a key is to be measured."""
        return not self.only or key in self.only


@dataclass
class Results:
    """All figures so far."""

    keep: Callable[[], None]
    """Told after each figure."""
    measures: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By key and model."""
    growth: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """By axis, model and place on the axis."""

    @property
    def failed(self) -> list[str]:
        """List what could not be measured."""
        flat: list[tuple[str, Mapping[str, Any]]] = [
            (f"{key} of {model}", each)
            for key, models in self.measures.items()
            for model, each in models.items()
        ]
        flat += [
            (f"{axis} {place} of {model}", each)
            for axis, models in self.growth.items()
            for model, places in models.items()
            for place, each in places.items()
        ]
        return [f"{name}: {each['error']}" for name, each in flat if "error" in each]

    def add(
        self, lab: Lab, measures: Iterable[Measure], rounds: Rounds, *, model: str
    ) -> None:
        """Measure, and keep each figure under its key and the model's name."""
        for measure in measures:
            if rounds.wants(measure.key):
                taken = taken_figure(
                    measure, lab, measure.rounds_of(rounds.n_rounds), rounds.tries
                )
                self.measures.setdefault(measure.key, {})[model] = taken
                self.keep()

    def add_growth(
        self, lab: Lab, axes: Mapping[str, Mapping[int, Measure]], rounds: Rounds
    ) -> None:
        """Measure along each axis."""
        for axis, places in axes.items():
            if not rounds.wants(axis) or not rounds.growth_rounds:
                continue
            for place, measure in places.items():
                taken = taken_figure(measure, lab, rounds.growth_rounds, rounds.tries)
                of_model = self.growth.setdefault(axis, {})
                of_model.setdefault(lab.model.name, {})[str(place)] = taken
                self.keep()


def taken_figure(
    measure: Measure, lab: Lab, n_rounds: int, tries: int
) -> dict[str, Any]:
    """Measure some rounds; give the figure, or what went wrong."""
    head = {
        "title": measure.title,
        "unit": measure.unit,
        "more_is_better": measure.is_more_better,
    }
    try:
        rounds = taken_rounds(measure, lab, n_rounds, tries)
    except FAILURES as error:
        say(f"{measure.key}, {lab.model.name}: {error}")
        return {**head, "error": f"{type(error).__name__}: {error}"}
    found = figure(rounds, goals=measure.goals, reasons=measure.reasons)
    also = {
        key: {
            "title": title,
            **summed([each.reading.of_details(key) for each in rounds]),
        }
        for key, title in measure.also.items()
    }
    return {**head, **found, "also": also}


def taken_rounds(measure: Measure, lab: Lab, n_rounds: int, tries: int) -> list[Round]:
    """Measure some rounds, telling each."""
    rounds: list[Round] = []
    with measure.open(lab) as take:
        for number in range(n_rounds):
            measured = undisturbed(partial(take, number), tries=tries)
            rounds.append(Round(measured.value, measured.others))
            say(told(measure, lab, number, measured.value, measured.others))
    return rounds


def told(
    measure: Measure, lab: Lab, number: int, reading: Reading, others: float
) -> str:
    """Put a round into words."""
    values = ", ".join(f"{side} {value:.4g}" for side, value in reading.values.items())
    return (
        f"{measure.key}, {lab.model.name}, round {number + 1}: {values} {measure.unit}, "
        f"other processes {others:.2f} cores"
    )


def say(text: str) -> None:
    """Tell the person who waits."""
    print(f"[bench] {text}", file=sys.stderr, flush=True)
