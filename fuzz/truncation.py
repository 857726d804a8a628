"""A valid exchange that ends at every byte, by closing and by half-closing.

For each prefix the daemon answers what is whole and closes, never hangs, and nothing is
left afterwards.

    python -m fuzz.truncation
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import trio

from fuzz.corpus import CLEAN, SEEDS, SURFACES, SurfaceName
from fuzz.exchange import Manner, drains, exchange
from fuzz.judge import BrokenPromiseError
from fuzz.lines import say
from fuzz.target import Target, target

N_CLIENTS: Final = 16
MANNERS: Final = (Manner.HASTY, Manner.PATIENT)
"""The one closes, the other ends its own side and reads to the end."""
ALL: Final[Mapping[SurfaceName, bytes]] = {
    surface: b"\n".join(line for line in lines if not drains(line)) + b"\n"
    for surface, lines in SEEDS.items()
}
"""Every seed of a surface on one connection."""
SHORT: Final[Mapping[SurfaceName, bytes]] = {
    surface: line + b"\n" for surface, line in CLEAN.items()
}


class Cut(NamedTuple):
    """One connection."""

    surface: SurfaceName
    data: bytes
    manner: Manner


def main() -> int:
    """Cut everything everywhere."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    cuts = list(all_cuts(ALL))
    say(f"{len(cuts):,} connections")
    began_at = time.monotonic()
    with target() as daemon:
        findings = cut_all(daemon, cuts)
        for finding in findings:
            say(finding)
        wall_s = time.monotonic() - began_at
        say(f"{len(cuts):,} connections in {wall_s:.1f} s; {len(findings)} findings")
        daemon.check()
        say(f"all as before; memory grew by {daemon.growth_bytes / 2**20:.1f} MiB")
    return 1 if findings else 0


def all_cuts(exchanges: Mapping[SurfaceName, bytes]) -> Iterator[Cut]:
    """Give every prefix of every exchange, in each manner."""
    for surface in SURFACES:
        data = exchanges[surface]
        for end in range(len(data) + 1):
            for manner in MANNERS:
                yield Cut(surface, data[:end], manner)


def cut_all(daemon: Target, cuts: Iterable[Cut]) -> list[str]:
    """Make each of these connections; give what was found."""
    findings: list[str] = []
    directory = daemon.daemon.directory
    trio.run(partial(_make_all, directory, iter(cuts), findings))
    return findings


async def _make_all(directory: Path, cuts: Iterator[Cut], findings: list[str]) -> None:
    async def make_on() -> None:
        for surface, data, manner in cuts:
            try:
                await exchange(directory, surface, data, manner)
            except (BrokenPromiseError, OSError) as error:
                findings.append(f"{surface}, {manner.name.lower()}: {data!r}: {error}")

    async with trio.open_nursery() as nursery:
        for _ in range(N_CLIENTS):
            nursery.start_soon(make_on)


if __name__ == "__main__":
    sys.exit(main())
