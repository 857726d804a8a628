"""R19: told to end at every moment: while loading, under load, twice, in a crash."""

import signal
import time
from collections.abc import Callable, Mapping
from typing import Final

import trio

from tests.daemon.harness import mock
from torture.clients import Answer, Ledger, ask, text
from torture.load import eventually
from torture.outcome import MS, Context
from torture.victim import Victim

KEY: Final = "R19"
NAME: Final = "Told to end at any moment"

DRAIN_S: Final = 1.0
MAX_EXIT_MS: Final = (DRAIN_S + 10.0) * MS
N_CLIENTS: Final = 8
CONFIG: Final = {
    "backend": [mock(tokens=["x"] * 1000, token_delay_ms=5)],
    "admission": {"max_active": 2, "max_queued": N_CLIENTS},
    "limits": {"drain_s": DRAIN_S},
}
STALLS: Final = mock(die_at_load=True, die_by="SIGSTOP")
QUESTION: Final = text("hello")
LOCK: Final = ["inferd.lock"]
"""All that may be left in the sockets' directory."""

Blow = Callable[[Victim], None]


def _terminate(daemon: Victim) -> None:
    daemon.send_signal(signal.SIGTERM)


def _terminate_twice(daemon: Victim) -> None:
    daemon.send_signal(signal.SIGTERM)
    time.sleep(DRAIN_S / 4)
    daemon.send_signal(signal.SIGTERM)


def _crash_worker_meanwhile(daemon: Victim) -> None:
    daemon.send_signal(signal.SIGTERM)
    time.sleep(DRAIN_S / 4)
    daemon.kill_worker()


def _hang_worker_meanwhile(daemon: Victim) -> None:
    daemon.kill_worker(signal.SIGSTOP)
    daemon.send_signal(signal.SIGTERM)


def _kill_meanwhile(daemon: Victim) -> None:
    daemon.send_signal(signal.SIGTERM)
    time.sleep(DRAIN_S / 4)
    daemon.send_signal(signal.SIGKILL)


BLOWS: Final[Mapping[str, Blow]] = {
    "told": _terminate,
    "told twice": _terminate_twice,
    "its worker crashes": _crash_worker_meanwhile,
    "its worker hangs": _hang_worker_meanwhile,
    "killed": _kill_meanwhile,
}


def run(context: Context) -> None:
    """End daemons in every way."""
    exits: list[float] = []
    for _ in range(context.pick(short=1, full=20)):
        exits.append(_end_while_loading(context))
        exits += [_end_under_load(context, name) for name in BLOWS]
    context.counts["endings"] = len(exits)
    context.measure("exit", exits)


def _end_while_loading(context: Context) -> float:
    daemon = Victim({"backend": [STALLS]})
    daemon.spawn()
    try:
        daemon.admin().until("loading_model")
        return _see_end(context, daemon, "while loading")
    finally:
        daemon.finish()


def _see_end(context: Context, daemon: Victim, name: str) -> float:
    """Strike, and see the daemon end as it should; give the seconds."""
    code = -signal.SIGKILL if name == "killed" else 0
    began_at = time.monotonic()
    BLOWS.get(name, _terminate)(daemon)
    found = daemon.wait()
    seconds = time.monotonic() - began_at
    context.require_within(seconds * MS, MAX_EXIT_MS, f"{name}: the exit")
    context.require(found == code, f"{name}: exit status {found}")
    context.require(daemon.workers_end(), f"{name}: workers are left")
    left = sorted(path.name for path in daemon.directory.iterdir())
    is_clean = left == LOCK or code < 0
    context.require(is_clean, f"{name}: {left} are left in the directory")
    return seconds


def _end_under_load(context: Context, name: str) -> float:
    daemon = Victim(CONFIG)
    daemon.start()
    try:
        ledger = Ledger()
        seconds = trio.run(_load_and_end, context, daemon, ledger, name)
        _count(context, ledger, name)
        return seconds
    finally:
        daemon.finish()


def _count(context: Context, ledger: Ledger, name: str) -> None:
    """Every client has to be told, but for those of a daemon that is killed."""
    counts = ledger.counts()
    for key in ("asked", "done", "backend_unavailable"):
        context.counts[key] = context.counts.get(key, 0) + counts.get(key, 0)
    if name == "killed":
        context.require(not ledger.n_doubled, f"{name}: {counts}")
        return
    words = "; ".join(ledger.problems("backend_unavailable"))
    context.require(not words, f"{name}: {words}")


async def _load_and_end(
    context: Context, daemon: Victim, ledger: Ledger, name: str
) -> float:
    n_heard = 0

    def heard(_: object) -> None:
        nonlocal n_heard
        n_heard += 1

    async def be_answered(number: int) -> None:
        answer: Answer = await ask(
            daemon.directory, QUESTION, f"r{number}", heard=heard
        )
        ledger.enter(QUESTION, answer)

    async with trio.open_nursery() as nursery:
        for number in range(N_CLIENTS):
            nursery.start_soon(be_answered, number)
        await eventually(lambda: n_heard > N_CLIENTS)
        await trio.sleep(context.rng.random() / 10)
        return await trio.to_thread.run_sync(_see_end, context, daemon, name)
    raise AssertionError("a nursery that is not cancelled does not swallow")
