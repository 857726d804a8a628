"""Millions of hostile lines through framing, decoders and ``resolve``.

Prints what came of them, the rate and the memory. A finding is printed with the command
that replays its line; the exit status is 1 then.

    python -m fuzz.lines 10000000 --processes 2
    python -m fuzz.lines --seed 1 --replay 1234
"""

import argparse
import random
import re
import secrets
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fuzz.judge import BrokenPromiseError, frames_of, judge
from fuzz.mutator import Mutant, mutant
from fuzz.process import rss_bytes
from inferd.errors import FrameTooLargeError

N_LINES: Final = 1_000_000
WARM_UP_SHARE: Final = 10
"""The first of so many parts: memory is measured after it."""
MAX_GROWTH_BYTES: Final = 32 * 1024 * 1024
"""What the heap may be larger at the end: some of the longest lines."""
MAX_LINE_S: Final = 1.0
"""Processor time that one line of a megabyte or two may take: the event loop stands still
for as long."""
SAY_EVERY: Final = 100_000
DRIBBLED_BYTES: Final = 500
"""Longest line that comes in small pieces."""
SHOWN_BYTES: Final = 300
KIND_WORDS: Final = 9


class Finding(NamedTuple):
    """A line that broke a promise."""

    number: int
    what: str


@dataclass
class Tally:
    """What came of a number of lines."""

    n_lines: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)
    """The first line of each kind of finding."""
    n_findings: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    """Processor time that one line took."""
    growth_bytes: int = 0
    """Memory of this process at the end, less that after the warm-up."""

    def add(self, other: "Tally") -> None:
        """Take another process's lines in."""
        self.n_lines += other.n_lines
        self.outcomes += other.outcomes
        self.findings = {**other.findings, **self.findings}
        self.n_findings += other.n_findings
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        self.growth_bytes = max(self.growth_bytes, other.growth_bytes)

    @property
    def is_sound(self) -> bool:
        """Whether every promise was kept."""
        return not self.findings and self.growth_bytes <= MAX_GROWTH_BYTES


class Share(NamedTuple):
    """The lines of one process."""

    seed: int
    indices: range


def main() -> int:
    """Try the lines that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n_lines", type=int, nargs="?", default=N_LINES)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--replay", type=int, metavar="INDEX")
    arguments = parser.parse_args()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    if arguments.replay is not None:
        return replay(seed, arguments.replay)
    say(f"seed {seed}, {arguments.n_lines:,} lines, {arguments.processes} processes")
    began_at = time.monotonic()
    tally = try_all(seed, arguments.n_lines, n_processes=arguments.processes)
    report(seed, tally, wall_s=time.monotonic() - began_at)
    return 0 if tally.is_sound else 1


def say(text: str) -> None:
    """Tell the person who waits."""
    print(text, file=sys.stderr, flush=True)


def try_all(seed: int, n_lines: int, *, n_processes: int = 1) -> Tally:
    """Try lines, in one process or several."""
    if n_processes == 1:
        return try_share(Share(seed, range(n_lines)))
    shares = [Share(seed, range(at, n_lines, n_processes)) for at in range(n_processes)]
    total = Tally()
    with ProcessPoolExecutor(n_processes) as processes:
        for tally in processes.map(try_share, shares):
            total.add(tally)
    return total


def try_share(share: Share) -> Tally:
    """Try the lines of one process."""
    tally = Tally()
    rng = random.Random()  # noqa: S311  # nobody's secret
    began_at = time.monotonic()
    rss_then = rss_bytes()
    for index in share.indices:
        try_line(mutant(share.seed, index, rng=rng), index, tally)
        if tally.n_lines == len(share.indices) // WARM_UP_SHARE:
            rss_then = rss_bytes()
        if tally.n_lines % SAY_EVERY == 0:
            rate = tally.n_lines / (time.monotonic() - began_at)
            say(f"{tally.n_lines:,} lines, {rate:,.0f}/s, {len(tally.findings)} kinds")
    tally.growth_bytes = rss_bytes() - rss_then
    return tally


def try_line(tried: Mutant, index: int, tally: Tally) -> None:
    """Try one line, which may be several frames."""
    tally.n_lines += 1
    began_at = time.thread_time()
    try:
        for outcome in judge_all(tried, in_pieces=index % 8 == 0):
            tally.outcomes[f"{tried.surface} {outcome}"] += 1
        tally.slowest_s = max(tally.slowest_s, _lasted_s(began_at))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
        kind = _kind_of(error)
        tally.n_findings[kind] += 1
        what = "".join(traceback.format_exception(error)[-4:])
        tally.findings.setdefault(kind, Finding(index, what))


def judge_all(tried: Mutant, *, in_pieces: bool = False) -> Iterator[str]:
    """Try the frames of a line; give a word for what came of each.

    Raises:
        BrokenPromiseError: not what must come, or any other exception.
    """
    is_short = len(tried.line) <= DRIBBLED_BYTES
    n_at_once = 5 if in_pieces and is_short else None
    try:
        for frame in frames_of(tried.surface, tried.line, n_at_once=n_at_once):
            yield judge(tried.surface, frame)
    except FrameTooLargeError:
        yield "over the cap"


def _lasted_s(began_at: float) -> float:
    lasted_s = time.thread_time() - began_at
    if lasted_s > MAX_LINE_S:
        raise BrokenPromiseError(f"a line took {lasted_s:.1f} s")
    return lasted_s


def _kind_of(error: Exception) -> str:
    """Tell findings apart by where they come from and how they begin."""
    [last] = traceback.extract_tb(error.__traceback__)[-1:]
    words = re.split(r"'|`|\d", str(error))[0].split()[:KIND_WORDS]
    return f"{type(error).__name__} in {last.name}: {' '.join(words)}"


def replay(seed: int, index: int) -> int:
    """Try one line again, and show it."""
    tried = mutant(seed, index)
    print(tried.surface)
    sys.stdout.buffer.write(tried.line + b"\n")
    tally = Tally()
    try_line(tried, index, tally)
    for outcome in tally.outcomes:
        print(outcome)
    for finding in tally.findings.values():
        print(finding.what)
    return 1 if tally.findings else 0


def report(seed: int, tally: Tally, *, wall_s: float) -> None:
    """Print what came of all lines."""
    for outcome, n_times in sorted(tally.outcomes.items()):
        say(f"{n_times:>12,}  {outcome}")
    for kind, finding in tally.findings.items():
        say(f"\n{tally.n_findings[kind]} times: {kind}")
        say(_shown(mutant(seed, finding.number)))
        say(finding.what)
        say(f"python -m fuzz.lines --seed {seed} --replay {finding.number}")
    say(
        f"{tally.n_lines:,} lines in {wall_s:.1f} s, {tally.n_lines / wall_s:,.0f}/s; "
        f"the slowest took {tally.slowest_s * 1000:.0f} ms; memory grew by {tally.growth_bytes / 2**20:.1f} MiB; "
        f"{len(tally.findings)} kinds of findings"
    )


def _shown(tried: Mutant) -> str:
    line = tried.line
    cut = f"… ({len(line)} bytes)" if len(line) > SHOWN_BYTES else ""
    return f"{tried.surface}: {line[:SHOWN_BYTES]!r}{cut}"


if __name__ == "__main__":
    sys.exit(main())
