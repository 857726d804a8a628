"""R6: a thousand clients at once, and three thousand where a thousand have room."""

import resource
from typing import Final

import trio

from fuzz.process import rss_bytes
from tests.daemon.harness import mock
from torture.clients import (
    PATIENCE_S,
    Answer,
    Ledger,
    Question,
    connect,
    converse,
    text,
)
from torture.litter import check_left, settled
from torture.load import undisturbed
from torture.outcome import Context, SkippedError
from torture.victim import Victim, running

KEY: Final = "R6"
NAME: Final = "A thundering herd"

QUESTION: Final = text("hello")
SPARE_FDS: Final = 256
CROWDED: Final = {
    "backend": [mock(tokens=["x"] * 10, token_delay_ms=1)],
    "admission": {"max_active": 4, "max_queued": 64},
}
MIB: Final = 1 << 20


def run(context: Context) -> None:
    """Let in as many as have room, then three times as many."""
    n_clients = context.pick(short=120, full=1000)
    allow_files(4 * n_clients)
    _crowd(context, n_clients, n_places=n_clients + 24, name="herd")
    _crowd(context, 3 * n_clients, n_places=n_clients, name="over")


def allow_files(n_files: int) -> None:
    """Allow this process so many descriptors, beside what it has.

    Raises:
        SkippedError: it may not have them.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = n_files + SPARE_FDS
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SkippedError(f"{wanted} descriptors are needed, {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _crowd(context: Context, n_clients: int, *, n_places: int, name: str) -> None:
    config = {**CROWDED, "limits": {"max_connections": n_places}}
    with running(Victim(config)) as daemon:
        before = settled(daemon)
        ledger = Ledger(trio.run(undisturbed, daemon.directory, [QUESTION]))
        trio.run(_come, daemon, ledger, n_clients)
        context.counts |= {f"{name}_{key}": n for key, n in ledger.counts().items()}
        context.measure(f"{name}_answer", ledger.seconds)
        context.figures[f"{name}_rss_mib"] = round(rss_bytes(daemon.pid) / MIB, 1)
        context.problems += ledger.problems("queue_full")
        context.require(ledger.n_done > 0, "nobody was answered")
        check_left(context, daemon, before)


async def _come(daemon: Victim, ledger: Ledger, n_clients: int) -> None:
    """Connect everybody, then have all of them ask at once."""
    all_here = trio.Event()
    n_here = 0

    async def come(number: int) -> None:
        nonlocal n_here
        stream = await connect(daemon.directory / QUESTION.leaf)
        n_here += 1
        if n_here == n_clients:
            all_here.set()
        await all_here.wait()
        ledger.enter(QUESTION, await _ask(stream, QUESTION, f"r{number}"))

    async with trio.open_nursery() as nursery:
        for number in range(n_clients):
            nursery.start_soon(come, number)


async def _ask(
    stream: trio.SocketStream, question: Question, request_id: str
) -> Answer:
    answer = Answer(request_id)
    with trio.move_on_after(PATIENCE_S) as scope:
        await converse(stream, question.to_line(request_id), answer)
    answer.hangs = scope.cancelled_caught
    return answer
