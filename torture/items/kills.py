"""R1: workers killed while clients are answered, and hung ones."""

from signal import Signals
from typing import Final

import trio

from tests.daemon.harness import mock
from torture.clients import scores, text, typed, vectors
from torture.litter import check_left, metric, settled
from torture.load import Killer, Load, undisturbed
from torture.outcome import Context
from torture.victim import Victim, running

KEY: Final = "R1"
NAME: Final = "Scripted workers killed and stopped under load"

N_CLIENTS: Final = 16
MAX_ACTIVE: Final = 4
SCRIPT: Final = ("<think>", "so", "</think>", *(f"word{n} " for n in range(20)))
CONFIG: Final = {
    "backend": [mock(tokens=list(SCRIPT), token_delay_ms=1)],
    "admission": {"max_active": MAX_ACTIVE, "max_queued": 4 * N_CLIENTS},
    "limits": {"worker_silence_s": 1, "load_silence_s": 3, "breaker_deaths": 1000},
}
QUESTIONS: Final = (
    text("hello"),
    text("hello", max_tokens=5),
    text("hello", stream=False),
    typed("hello"),
    typed("hello", max_tokens=7),
    vectors("one", "two"),
    scores("what is two", "one is not two", "nothing"),
)
MORTAL: Final = (Signals.SIGKILL, Signals.SIGSEGV, Signals.SIGABRT)
SIGNALS: Final = (*MORTAL * 10, Signals.SIGSTOP)
"""One in some thirty hangs, which takes a second to be noticed."""


def run(context: Context) -> None:
    """Kill workers; nobody may lose a request, or get two answers."""
    with running(Victim(CONFIG)) as daemon:
        before = settled(daemon)
        trio.run(_kill, context, daemon)
        check_left(context, daemon, before)
        n_deaths = int(metric(daemon, "inferd_worker_deaths_total"))
        context.counts["deaths_told"] = n_deaths
        context.require(n_deaths >= context.counts["kills"], "deaths are not counted")


async def _kill(context: Context, daemon: Victim) -> None:
    expected = await undisturbed(daemon.directory, QUESTIONS)
    load = Load(daemon.directory, expected, context.rng, n_clients=N_CLIENTS)
    killer = Killer(daemon, load, context.rng, signals=SIGNALS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await killer.kill_times(context.pick(short=6, full=1000))
        load.stop()
    settle(context, load, killer, max_active=MAX_ACTIVE)


def settle(context: Context, load: Load, killer: Killer, *, max_active: int) -> None:
    """Report what became of the requests; no kill may have cost more than ran."""
    ledger = load.ledger
    context.counts |= {"kills": killer.n_kills} | ledger.counts()
    context.measure("recovery", killer.recoveries)
    context.problems += ledger.problems("backend_unavailable")
    n_errors = ledger.codes["backend_unavailable"]
    context.require(
        n_errors <= killer.n_kills * max_active,
        f"{killer.n_kills} kills cost {n_errors} requests, and {max_active} ran at once",
    )
