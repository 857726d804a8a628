"""What is counted and measured, as it is reported."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from torture.outcome import MS, percentile

N_SLOWEST: Final = 5
"""Hostile requests that are named, the slowest of all."""
DONE: Final = "done"
HUNG: Final = "hung"
LOST: Final = "lost"
REFUSED: Final = "refused"
"""How a request ends, if not with the code of an error."""


@dataclass
class Sample:
    """One request."""

    seconds: float
    """Until its terminal frame, or until whoever asked gave up."""
    first_s: float
    """Until the first frame of its answer."""
    code: str
    """``done``, the code of an error, or ``hung``, ``lost``, ``refused``."""
    name: str = ""


@dataclass
class Tally:
    """What became of somebody's requests."""

    codes: Counter[str] = field(default_factory=Counter)
    slowest: list[Sample] = field(default_factory=list)

    def enter(self, sample: Sample) -> None:
        """Take note of a request."""
        self.codes[sample.code] += 1
        kept = [*self.slowest, sample]
        kept.sort(key=lambda each: -each.seconds)
        self.slowest = kept[:N_SLOWEST]

    def add(self, other: "Tally") -> None:
        """Take note of all that another one has."""
        self.codes += other.codes
        kept = [*self.slowest, *other.slowest]
        self.slowest = sorted(kept, key=lambda each: -each.seconds)[:N_SLOWEST]


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long a user's requests took, in milliseconds."""

    n: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    codes: dict[str, int]
    """How they ended."""

    @property
    def n_failed(self) -> int:
        """Requests that were not served."""
        return self.n - self.codes.get(DONE, 0)


def latency(samples: Sequence[Sample], every_s: float) -> Latency:
    """Sum up requests, the time of each until its terminal frame; zeroes of none.

    Who asks again once there is an answer asks seldom while answers take long, and so
    would count one stall as one request. So one that took long stands for all that would
    have been asked meanwhile, and would have waited for its end.

    Args:
        samples: the requests.
        every_s: seconds from one request to the next while nothing is slow.
    """
    seconds = [
        each.seconds - waited * every_s
        for each in samples
        for waited in range(max(1, int(each.seconds / every_s)))
    ] or [0.0]
    return Latency(
        n=len(samples),
        p50_ms=round(percentile(seconds, 50) * MS, 2),
        p99_ms=round(percentile(seconds, 99) * MS, 2),
        max_ms=round(max(seconds) * MS, 2),
        codes=dict(Counter(each.code for each in samples)),
    )


class Check(msgspec.Struct, frozen=True):
    """One thing that had to be so."""

    name: str
    is_held: bool
    detail: str = ""
    is_of_time: bool = False
    """Whether it depends on how fast the machine is."""


class Holdings(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon has."""

    workers: list[int]
    """Process ids."""
    rss_mb: float
    n_fds: int
