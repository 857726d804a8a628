"""R18: mixed load and a kill every five seconds; nothing may grow."""

import statistics
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import trio

from fuzz.process import rss_bytes
from torture.items.kills import CONFIG, MORTAL, N_CLIENTS, QUESTIONS
from torture.litter import Holdings, check_left, settled
from torture.load import Killer, Load, undisturbed
from torture.outcome import Context
from torture.victim import Victim, running

KEY: Final = "R18"
NAME: Final = "A soak: mixed load, a kill in every round"

KIB: Final = 1024
WARM_UP_SHARE: Final = 5
"""The first of so many parts does not count: the allocator finds its size."""
MAX_GROWTH_KIB: Final = 4096
"""Between the median of the first and of the last third of what counts."""
MAX_SHORT_GROWTH_KIB: Final = 16 * 1024


class Sample(NamedTuple):
    """A daemon after one round, with nobody connected."""

    at_s: float
    holdings: Holdings
    rss_kib: float


def run(context: Context) -> None:
    """Load, kill, let it settle, look; again and again."""
    total_s = context.pick(short=8.0, full=600.0)
    round_s = context.pick(short=2.0, full=5.0)
    began_at = time.monotonic()
    samples: list[Sample] = []
    with running(Victim(CONFIG)) as daemon:
        before = settled(daemon)
        while time.monotonic() - began_at < total_s:
            trio.run(_load_once, context, daemon, round_s)
            check_left(context, daemon, before)
            held, rss = Holdings.of(daemon), rss_bytes(daemon.pid) / KIB
            samples.append(Sample(time.monotonic() - began_at, held, rss))
    _judge(context, samples[len(samples) // WARM_UP_SHARE :])


async def _load_once(context: Context, daemon: Victim, round_s: float) -> None:
    expected = await undisturbed(daemon.directory, QUESTIONS)
    load = Load(daemon.directory, expected, context.rng, n_clients=N_CLIENTS)
    killer = Killer(daemon, load, context.rng, signals=MORTAL)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await trio.sleep(round_s * context.rng.random())
        ends_at = trio.current_time() + round_s / 2
        await killer.kill_once()
        await trio.sleep_until(max(ends_at, trio.current_time()))
        load.stop()
    context.problems += load.ledger.problems("backend_unavailable")
    for name, number in ({"kills": killer.n_kills} | load.ledger.counts()).items():
        context.counts[name] = context.counts.get(name, 0) + number


def _judge(context: Context, samples: Sequence[Sample]) -> None:
    context.counts["rounds"] = len(samples)
    for name in ("n_fds", "n_threads", "n_tasks"):
        values = [getattr(each.holdings, name) for each in samples]
        context.figures[f"{name}_growth"] = grown = _growth(values)
        context.figures[f"{name}_slope_per_hour"] = _slope(samples, values)
        context.require(grown <= 0, f"{name} grew by {grown}")
    sizes = [each.rss_kib for each in samples]
    context.figures["rss_last_kib"] = round(sizes[-1])
    context.figures["rss_growth_kib"] = grown = _growth(sizes)
    context.figures["rss_slope_kib_per_hour"] = _slope(samples, sizes)
    bound = context.pick(short=MAX_SHORT_GROWTH_KIB, full=MAX_GROWTH_KIB)
    context.require(grown <= bound, f"memory grew by {grown} KiB")


def _growth(values: Sequence[float]) -> float:
    """Compare the medians of the last and of the first third."""
    n_each = max(1, len(values) // 3)
    last, first = values[-n_each:], values[:n_each]
    return round(statistics.median(last) - statistics.median(first), 1)


def _slope(samples: Sequence[Sample], values: Sequence[float]) -> float:
    """Give the growth in an hour of the line that fits best."""
    if len(samples) < 2:  # noqa: PLR2004  # a line needs two points
        return 0.0
    hours = [each.at_s / 3600 for each in samples]
    return round(statistics.linear_regression(hours, values).slope, 1)
