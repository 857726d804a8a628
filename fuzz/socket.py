"""Hostile lines over the sockets of a real daemon, from clients without manners.

Afterwards the daemon must be as it was: the same processes, files and threads, no request
left, its only permit free, and a sound request answered on every surface.

    python -m fuzz.socket 100000
"""

import argparse
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import trio

from fuzz.corpus import SurfaceName
from fuzz.descriptors import COUNTS, KINDS
from fuzz.exchange import (
    Manner,
    broken_off,
    drains,
    exchange,
    foretell,
    is_borderline,
)
from fuzz.judge import BrokenPromiseError
from fuzz.lines import say
from fuzz.mutator import N_GRID, mutant
from fuzz.target import Target, target

N_LINES: Final = 100_000
N_CLIENTS: Final = 24
LINES_AT_ONCE: Final = 16
"""Lines that one client sends at most."""
DRIBBLED_BYTES: Final = 400
"""Most that comes a byte at a time."""
DESCRIPTORS_SHARE: Final = 0.3
"""How many clients hand some over."""
WARM_UP_SHARE: Final = 20
"""The first of so many parts: memory is measured after it."""
MAX_FINDINGS: Final = 10
SHOWN_BYTES: Final = 300
MANNERS: Final = {
    Manner.PATIENT: 70,
    Manner.DRIBBLING: 8,
    Manner.HASTY: 8,
    Manner.BROKEN_OFF: 8,
    Manner.FICKLE: 6,
}


class Visit(NamedTuple):
    """What one client does."""

    number: int
    surface: SurfaceName
    data: bytes
    manner: Manner
    n_lines: int
    kinds: tuple[str, ...]
    """Of the descriptors that go along."""


@dataclass
class Tally:
    """What came of a number of visits."""

    n_lines: int = 0
    n_visits: int = 0
    manners: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[Visit, str]] = field(default_factory=list)


def main() -> int:
    """Run a daemon and be rude to it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n_lines", type=int, nargs="?", default=N_LINES)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--replay", type=int, metavar="VISIT")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    say(f"seed {seed}, {arguments.n_lines:,} lines, {N_CLIENTS} clients")
    began_at = time.monotonic()
    with target() as daemon:
        if arguments.replay is None:
            tally = fire(daemon, seed, arguments.n_lines)
        else:
            tally = replay(daemon, seed, arguments.replay)
        report(seed, tally, wall_s=time.monotonic() - began_at)
        daemon.check()
        say(f"all as before; memory grew by {daemon.growth_bytes / 2**20:.1f} MiB")
    return 1 if tally.findings else 0


def fire(daemon: Target, seed: int, n_lines: int) -> Tally:
    """Send so many lines; measure memory once some are through."""
    tally = Tally()
    source = visits(seed)
    n_first = n_lines // WARM_UP_SHARE
    trio.run(_receive_all, daemon.daemon.directory, source, n_first, tally)
    daemon.warmed_up()
    trio.run(_receive_all, daemon.daemon.directory, source, n_lines, tally)
    return tally


def replay(daemon: Target, seed: int, number: int) -> Tally:
    """Send what one client sent, alone."""
    tally = Tally()
    [chosen] = [each for each, _ in zip(visits(seed), range(number + 1), strict=False)][
        number:
    ]
    trio.run(_receive_all, daemon.daemon.directory, iter([chosen]), 1, tally)
    return tally


def visits(seed: int) -> Iterator[Visit]:
    """Give what client after client does, without end.

    Lines are put together up to one that ends the connection, so that each of them is
    read.
    """
    held: dict[SurfaceName, list[bytes]] = {}
    numbers = count()
    rng = random.Random(seed)  # noqa: S311  # nobody's secret
    line_rng = random.Random()  # noqa: S311  # nobody's secret
    for index in count(N_GRID):
        surface, line = mutant(seed, index, rng=line_rng)
        if surface == "admin" and drains(line):
            continue
        lines = held.setdefault(surface, [])
        lines.append(line)
        due = foretell(surface, line + b"\n")
        if due.closes or is_borderline(surface, line) or len(lines) == LINES_AT_ONCE:
            del held[surface]
            yield _visit(rng, next(numbers), surface, lines)


def _visit(
    rng: random.Random, number: int, surface: SurfaceName, lines: list[bytes]
) -> Visit:
    ending = rng.choice((b"\n", b"\n", b"\n", b"\r\n", b""))
    data = b"\n".join(lines) + ending
    [manner] = rng.choices(list(MANNERS), list(MANNERS.values()))
    if manner is Manner.DRIBBLING and len(data) > DRIBBLED_BYTES:
        manner = Manner.PATIENT
    if is_borderline(surface, data):
        manner = Manner.FICKLE
    elif surface == "admin" and drains(broken_off(data)):
        manner = Manner.PATIENT
    return Visit(number, surface, data, manner, len(lines), _kinds(rng))


def _kinds(rng: random.Random) -> tuple[str, ...]:
    """Draw descriptors to go along, with some of the clients."""
    if rng.random() >= DESCRIPTORS_SHARE:
        return ()
    return tuple(rng.choices(list(KINDS), k=rng.choice(COUNTS)))


async def _receive_all(
    directory: Path, source: Iterator[Visit], n_lines: int, tally: Tally
) -> None:
    """Let clients in until so many lines were sent, several at a time."""

    async def visit_on() -> None:
        while tally.n_lines < n_lines and len(tally.findings) < MAX_FINDINGS:
            visit = next(source, None)
            if visit is None:
                return
            tally.n_lines += visit.n_lines
            tally.n_visits += 1
            tally.manners[visit.manner.name.lower()] += 1
            try:
                await exchange(
                    directory, visit.surface, visit.data, visit.manner, visit.kinds
                )
            except (BrokenPromiseError, OSError) as error:
                tally.findings.append((visit, repr(error)))

    async with trio.open_nursery() as nursery:
        for _ in range(N_CLIENTS):
            nursery.start_soon(visit_on)


def report(seed: int, tally: Tally, *, wall_s: float) -> None:
    """Print what came of it."""
    for manner, n_times in tally.manners.most_common():
        say(f"{n_times:>12,}  {manner}")
    for visit, what in tally.findings:
        say(f"\nvisit {visit.number}, {visit.surface}, {visit.manner.name.lower()}:")
        say(f"{visit.data[:SHOWN_BYTES]!r} ({len(visit.data)} bytes)")
        say(what)
        say(f"python -m fuzz.socket --seed {seed} --replay {visit.number}")
    say(
        f"{tally.n_lines:,} lines on {tally.n_visits:,} connections in {wall_s:.1f} s, "
        f"{tally.n_lines / wall_s:,.0f}/s; {len(tally.findings)} findings"
    )


if __name__ == "__main__":
    sys.exit(main())
