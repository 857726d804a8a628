"""Measure a machine, simulate many of them, and draw how many users they serve.

    python -m bench.fleet     # docs/fleet-users.svg and bench/fleet/users.json

A point is 400 s of conversations, of which the first 40 s do not count. Users think 20 s on
average, have six turns of 100 tokens and read answers of 150; a later prompt has all that was
said before.
"""

import argparse
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
import msgspec

from bench.fleet.service_times import measured
from bench.fleet.simulation import (
    Habits,
    Route,
    Service,
    by_prefix,
    in_turns,
    simulate,
)
from bench.lab import Lab
from bench.models import DEFAULT, model_file
from bench.plots import SETTINGS, canvas
from torture.outcome import percentile

PICTURE: Final = Path("docs/fleet-users.svg")
FIGURES: Final = Path(__file__).parent / "users.json"
MACHINES: Final = (1, 4, 8)
USERS: Final = (2, 4, 8, 12, 16, 20, 24, 28, 32, 40)
"""Of each machine."""
FOR_S: Final = 400.0
SEED: Final = 1
WAYS: Final[Mapping[str, Callable[[], Route]]] = {
    "by prefix": by_prefix,
    "in turns": in_turns,
}
COLOURS: Final = {"by prefix": "#1b6ca8", "in turns": "#d1603d"}
DASHES: Final = {1: ":", 4: "--", 8: "-"}
MS: Final = 1000.0


class Point(msgspec.Struct, frozen=True):
    """What users of so many machines saw."""

    way: str
    machines: int
    users_each: int
    first_p50_ms: float
    first_p95_ms: float
    cached: float
    """Share of later turns whose beginning was in the cache."""


def main() -> int:
    """Measure, simulate and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--figures", type=Path, default=FIGURES)
    arguments = parser.parse_args()
    lab = Lab(model_file(DEFAULT[0]), frozenset({"inferd"}), os.cpu_count() or 1)
    service = measured(lab)
    points = [*_simulated(service)]
    told = {"service": service, "habits": Habits(), "points": points}
    data = msgspec.json.format(msgspec.json.encode(told))
    arguments.figures.write_bytes(data + b"\n")
    draw(points, arguments.picture)
    print(service)
    return 0


def _simulated(service: Service) -> Sequence[Point]:
    return [
        point(way, n_machines, users_each, service)
        for way in WAYS
        for n_machines in MACHINES
        for users_each in USERS
        if n_machines > 1 or way == "by prefix"
    ]


def point(way: str, n_machines: int, users_each: int, service: Service) -> Point:
    """Simulate one point."""
    seen = simulate(
        users_each * n_machines,
        n_machines,
        service,
        Habits(),
        WAYS[way](),
        for_s=FOR_S,
        seed=SEED,
    )
    return Point(
        way,
        n_machines,
        users_each,
        round(statistics.median(seen.first_s) * MS, 1),
        round(percentile(seen.first_s, 95) * MS, 1),
        round(seen.n_cached / max(1, seen.n_later), 3),
    )


def draw(points: Sequence[Point], path: Path) -> None:
    """Draw the 95th percentile of the first token by users of each machine."""
    with mpl.rc_context(SETTINGS):
        figure, axes = canvas("Simulated: 95 of 100 turns have a first token within")
        lines = dict.fromkeys((each.way, each.machines) for each in points)
        for way, n_machines in lines:
            of_line = [x for x in points if (x.way, x.machines) == (way, n_machines)]
            axes.plot(
                [each.users_each for each in of_line],
                [each.first_p95_ms for each in of_line],
                DASHES[n_machines],
                color=COLOURS[way],
                label=f"{n_machines} machines, {way}"
                if n_machines > 1
                else "1 machine",
            )
        axes.set_yscale("log")
        axes.set_xlabel("users of each machine")
        axes.set_ylabel("ms")
        axes.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    raise SystemExit(main())
