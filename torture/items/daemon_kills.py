"""R20: the daemon itself killed, under load, and started again in the same place."""

import signal
import time
from typing import Final

import trio

from tests.daemon.harness import mock
from torture.clients import text
from torture.litter import check_left, settled
from torture.load import Load, eventually, undisturbed
from torture.outcome import Context
from torture.victim import Victim, running

KEY: Final = "R20"
NAME: Final = "The daemon killed, and started again in the same place"

N_CLIENTS: Final = 8
CONFIG: Final = {
    "backend": [mock(tokens=["x"] * 50, token_delay_ms=2)],
    "admission": {"max_active": 4, "max_queued": 4 * N_CLIENTS},
}
QUESTION: Final = text("hello")
TAKEN: Final = "another inferd daemon already holds the lock"
WORKERS_END_S: Final = 60.0
LOAD_FOR_S: Final = 0.3


def run(context: Context) -> None:
    """Kill it, see its workers die, start it again; a second one is refused."""
    back: list[float] = []
    orphaned: list[float] = []
    with running(Victim(CONFIG)) as daemon:
        before = settled(daemon)
        for _ in range(context.pick(short=2, full=20)):
            trio.run(_kill_under_load, context, daemon, orphaned)
            began_at = time.monotonic()
            daemon.start()
            back.append(time.monotonic() - began_at)
            _see_second_refused(context, daemon)
            last = daemon.ask("hello")[-1]
            context.require(last["type"] == "done", f"after a kill: {last}")
        check_left(context, daemon, before)
    context.counts["daemon_kills"] = len(back)
    context.measure("back", back)
    context.measure("workers_gone", orphaned)


async def _kill_under_load(
    context: Context, daemon: Victim, orphaned: list[float]
) -> None:
    """Kill it while it answers; no client may hang, or be told two ends."""
    expected = await undisturbed(daemon.directory, [QUESTION])
    load = Load(daemon.directory, expected, context.rng, n_clients=N_CLIENTS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await trio.sleep(LOAD_FOR_S * (1 + context.rng.random()))
        await eventually(lambda: load.n_streaming > 0)
        load.stop()
        daemon.send_signal(signal.SIGKILL)
        await trio.to_thread.run_sync(daemon.wait)
        killed_at = trio.current_time()
        alive = await trio.to_thread.run_sync(daemon.worker_pids)
        gone = await trio.to_thread.run_sync(
            lambda: daemon.workers_end(within_s=WORKERS_END_S)
        )
        orphaned.append(trio.current_time() - killed_at)
    context.require(gone, f"workers outlived the daemon: {alive}")
    counts = load.ledger.counts()
    for key in ("asked", "done", "lost", "refused"):
        context.counts[key] = context.counts.get(key, 0) + counts[key]
    bad = {key: counts[key] for key in ("doubled", "hung", "wrong") if counts[key]}
    context.require(not bad, f"under a kill: {bad}")


def _see_second_refused(context: Context, daemon: Victim) -> None:
    config = {**CONFIG, "listen": {"directory": str(daemon.directory)}}
    second = Victim(config)
    try:
        refusal = second.refusal()
    finally:
        second.finish()
    context.require(TAKEN in refusal, f"a second daemon says: {refusal}")
