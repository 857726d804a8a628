"""R7: clients that read nothing, write a byte at a time, or say nothing at all."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import trio

from fuzz.process import rss_bytes
from tests.daemon.harness import mock
from torture.clients import Ledger, Question, ask, connect, text
from torture.litter import check_left, settled
from torture.load import undisturbed
from torture.outcome import MS, Context, percentile
from torture.victim import Victim, running

KEY: Final = "R7"
NAME: Final = "Readers that stall, writers that dribble, clients that say nothing"

PING: Final = text("hello", max_tokens=1)
LONG: Final = text("hello", max_tokens=100_000)
MAX_P99_MS: Final = 20.0
MAX_COMING_MS: Final = 500.0
"""While the answers are made that will not be read: a few of them may come before."""
N_OTHERS: Final = 4
MIB: Final = 1 << 20
DRIBBLE_S: Final = 0.02
PING_EVERY_S: Final = 0.01
QUIET_S: Final = 2.0
FILL_S: Final = 4.0
"""In which more is written than the kernel holds for one who reads nothing."""


def run(context: Context) -> None:
    """Ask short questions, without them and beside them, with the default ``max_active``."""
    n_stalled = context.pick(short=5, full=50)
    config = {
        "backend": [mock(tokens=["x" * 500] * 1000)],
        "limits": {"write_timeout_s": timeout_of(context)},
    }
    with running(Victim(config)) as daemon:
        before, rss = settled(daemon), rss_bytes(daemon.pid)
        expected = trio.run(undisturbed, daemon.directory, [PING])
        alone = trio.run(_ping_for, daemon.directory, expected, QUIET_S / 2)
        coming, beside = trio.run(_ping_beside, context, daemon, expected, n_stalled)
        _judge(context, alone, coming, beside)
        grown = (rss_bytes(daemon.pid) - rss) / MIB
        context.figures["rss_growth_mib"] = round(grown, 1)
        check_left(context, daemon, before)


def timeout_of(context: Context) -> float:
    """Give the seconds that a reader may stall, and that others ask beside it."""
    return context.pick(short=1.5, full=6.0)


def _judge(context: Context, alone: Ledger, coming: Ledger, beside: Ledger) -> None:
    for ledger in (alone, coming, beside):
        context.problems += ledger.problems()
    context.counts |= {f"others_{key}": n for key, n in beside.counts().items()}
    context.measure("alone", alone.seconds)
    context.measure("coming", coming.seconds)
    context.measure("beside", beside.seconds)
    slowest = max(coming.seconds) * MS
    context.require_within(slowest, MAX_COMING_MS, "others' slowest while they come")
    context.require_within(
        percentile(beside.seconds, 99) * MS, MAX_P99_MS, "others' p99"
    )


async def _ping_for(
    directory: Path, expected: Mapping[Question, str], seconds: float
) -> Ledger:
    """Ask one short question after another for so long."""
    is_over = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_set_after, is_over, seconds)
        return await _ping_till(is_over, directory, expected)


async def _set_after(event: trio.Event, seconds: float) -> None:
    await trio.sleep(seconds)
    event.set()


async def _ping_till(
    is_over: trio.Event, directory: Path, expected: Mapping[Question, str]
) -> Ledger:
    """Ask one short question after another until something is so."""
    ledger = Ledger(expected)
    while not is_over.is_set():
        ledger.enter(PING, await ask(directory, PING, f"ping-{ledger.n_asked}"))
        await trio.sleep(PING_EVERY_S)
    return ledger


async def _ping_beside(
    context: Context,
    daemon: Victim,
    expected: Mapping[Question, str],
    n_stalled: int,
) -> tuple[Ledger, Ledger]:
    """Ask short questions while those come who stall, and then while they do."""
    timeout_s = timeout_of(context)
    dropped: list[float] = []
    async with trio.open_nursery() as nursery:
        have_come = trio.Event()
        stall = partial(_stall, daemon.directory, timeout_s, dropped)
        nursery.start_soon(_come, n_stalled, stall, nursery, have_come)
        for _ in range(n_stalled):
            nursery.start_soon(_say_nothing, daemon.directory)
        for number in range(N_OTHERS):
            nursery.start_soon(_dribble, daemon.directory, number)
        coming = await _ping_till(have_come, daemon.directory, expected)
        beside = await _ping_for(daemon.directory, expected, timeout_s + FILL_S)
        with trio.move_on_after(4 * timeout_s + QUIET_S):
            while len(dropped) < n_stalled:
                await trio.sleep(PING_EVERY_S)
        nursery.cancel_scope.cancel()
    context.counts |= {"stalled": n_stalled, "dropped": len(dropped)}
    context.require(len(dropped) == n_stalled, f"{len(dropped)} of them were dropped")
    return coming, beside


async def _come(
    n_stalled: int,
    stall: Callable[..., Awaitable[None]],
    nursery: trio.Nursery,
    have_come: trio.Event,
) -> None:
    """Have one after another come, so that few of them wait in the queue."""
    for number in range(n_stalled):
        await nursery.start(stall, number)
    have_come.set()


async def _stall(
    directory: Path,
    timeout_s: float,
    dropped: list[float],
    number: int,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Ask for much, read a byte of it, and then nothing while the deadline passes."""
    stream = await connect(directory / LONG.leaf)
    async with stream:
        began_at = trio.current_time()
        await stream.send_all(LONG.to_line(f"stalled-{number}"))
        await stream.receive_some(1)
        task_status.started()
        await trio.sleep(2 * timeout_s + FILL_S)
        data = b""
        with suppress(trio.BrokenResourceError):
            while more := await stream.receive_some():
                data = (data + more)[-200:]
        if b'"done"' not in data and b'"error"' not in data:
            dropped.append(trio.current_time() - began_at)


async def _say_nothing(directory: Path) -> None:
    async with await connect(directory / PING.leaf):
        await trio.sleep_forever()


async def _dribble(directory: Path, number: int) -> None:
    async with await connect(directory / PING.leaf) as stream:
        for byte in PING.to_line(f"slow-{number}"):
            await stream.send_all(bytes([byte]))
            await trio.sleep(DRIBBLE_S)
        await stream.receive_some()
