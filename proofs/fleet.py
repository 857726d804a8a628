"""Eight machines behind one address: conversations go on while members die and are drained."""

import secrets
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from bench.fleet.simulation import Service
from proofs.conversations import N_TURNS, Talk, Tally, count_places, places
from proofs.first_answer import embedded_chat
from proofs.fleet_predicted import predict, service_of
from tests.daemon.fleet import BridgeFleet, add_token, fleet_of
from tests.daemon.harness import llamacpp, mock
from torture.outcome import Context

KEY: Final = "fleet"
NAME: Final = "Many machines behind one address"

N_AT_ONCE: Final = 32
N_HOLDERS: Final = 16
N_ALONE: Final = 20
"""Conversations that are held one after another."""
BACKEND: Final = mock(tokens=["a ", "b ", "c"], token_delay_ms=5)
KILLED, KILLED_NEXT, DRAINED = 0, 1, 2
"""Members by what happens to them."""
DRAIN_S: Final = 120.0
ROUND_ROBIN: Final = ("--policy", "round_robin")


def run(context: Context) -> None:
    """Hold conversations under kills and a drain, then without them in three other ways."""
    n_members = context.pick(short=3, full=8)
    n_compared = context.pick(short=40, full=1_000)
    with (
        TemporaryDirectory(prefix="fleet-") as path,
        fleet_of(Path(path), n_members, BACKEND) as fleet,
    ):
        holders = [f"holder-{number}" for number in range(N_HOLDERS)]
        tokens = [add_token(fleet.tokens, holder) for holder in holders]
        _under_kills(context, fleet, tokens)
        _compared(context, fleet, tokens, n_compared)
    if context.pick(short=False, full=True):
        _with_models(context)


def _under_kills(context: Context, fleet: BridgeFleet, tokens: list[str]) -> None:
    """Hold all conversations while two members are killed and one is drained."""
    n_all = context.pick(short=60, full=10_000)
    tally, events = Tally(), _Events(context, fleet, n_all)
    with fleet.smg():
        trio.run(
            _hold, Talk(fleet.address, tokens, "mock", tally), n_all, events.reached
        )
    context.require(events.n_left == 0, "not all that was to happen did")
    _report(context, tally, fleet, "under_kills", n_all)
    counts = tally.counts
    context.require(counts["lost"] == 0, f"lost: {tally.samples}")
    most = len((KILLED, KILLED_NEXT)) * N_AT_ONCE
    context.require(
        counts["failed_when_begun"] <= most, f"more failed than ran: {tally.samples}"
    )
    context.notes += tally.samples


class _Events:
    """What happens once so many conversations are over, each in a thread."""

    def __init__(self, context: Context, fleet: BridgeFleet, n_all: int) -> None:
        self._context, self._fleet = context, fleet
        steps: list[tuple[float, Callable[[], None]]] = [
            (0.2, partial(fleet.kill, KILLED)),
            (0.35, partial(fleet.restart, KILLED)),
            (0.5, partial(fleet.kill, KILLED_NEXT)),
            (0.65, partial(fleet.restart, KILLED_NEXT)),
            (0.8, self._drain),
        ]
        self._left = [(int(share * n_all), act) for share, act in steps]
        self.n_left = len(steps)

    async def reached(self, n_done: int) -> None:
        """Do what is due."""
        while self._left and n_done >= self._left[0][0]:
            _, act = self._left.pop(0)
            await trio.to_thread.run_sync(act)
            self.n_left -= 1

    def _drain(self) -> None:
        done: subprocess.CompletedProcess[str] = self._fleet.run(
            "drain", f"m{DRAINED}", "--timeout", str(DRAIN_S)
        )
        self._context.require(done.returncode == 0, f"drain: {done.stderr}")


async def _hold(
    talk: Talk, n_all: int, reached: Callable[[int], Awaitable[None]] | None = None
) -> None:
    """Hold conversations, and have what is due happen beside them."""
    send, receive = trio.open_memory_channel[int](n_all + 1)
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            async for n_done in receive:
                if reached is not None:
                    await reached(n_done)

        nursery.start_soon(watch)
        key = secrets.token_hex(4)  # no other run's beginnings are in a cache
        names = [f"{number} of {key}" for number in range(n_all)]
        n_at_once = min(N_AT_ONCE, n_all)
        with send:
            await talk.hold(names, n_at_once, send.send_nowait)


def _compared(
    context: Context, fleet: BridgeFleet, tokens: list[str], n_each: int
) -> None:
    """Hold the same without kills: by smg, by round robin, and with one member alone."""
    fleet.run("resume", f"m{DRAINED}")
    with fleet.smg():
        service = _service(Talk(fleet.address, tokens, "mock", Tally()))
    ways: Mapping[str, tuple[str, ...]] = {"prefixes": (), "round_robin": ROUND_ROBIN}
    for name, options in ways.items():
        tally = Tally()
        with fleet.smg(*options):
            _timed(context, name, Talk(fleet.address, tokens, "mock", tally), n_each)
        _report(context, tally, fleet, name, n_each)
    predict(
        context,
        service,
        n_at_once=min(N_AT_ONCE, n_each),
        n_members=len(fleet.bridges),
        n_turns=N_TURNS,
    )
    tally = Tally()
    alone = fleet.bridges[0].address
    trio.run(_hold, Talk(alone, tokens, "mock", tally), n_each)
    _report(context, tally, fleet, "one_daemon", n_each)
    figures = context.figures
    context.require(
        figures["prefixes_stayed"] > figures["round_robin_stayed"],
        "conversations stay no more often than by round robin",
    )


def _service(talk: Talk) -> Service:
    """Hold conversations one after another, which tells what a turn costs."""
    names = [f"{number} alone {secrets.token_hex(4)}" for number in range(N_ALONE)]
    began_at = time.monotonic()
    trio.run(talk.hold, names, 1)
    turn_s = (time.monotonic() - began_at) / (N_ALONE * N_TURNS)
    return service_of(statistics.median(talk.tally.first_s), turn_s)


def _timed(context: Context, name: str, talk: Talk, n_each: int) -> None:
    """Hold conversations, and tell how many turns of them a second has."""
    began_at = time.monotonic()
    trio.run(_hold, talk, n_each)
    seconds = time.monotonic() - began_at
    n_turns = talk.tally.counts["answered"]
    context.figures[f"{name}_turns_per_s"] = round(n_turns / seconds, 1)


def _report(
    context: Context, tally: Tally, fleet: BridgeFleet, name: str, n_all: int
) -> None:
    stayed, moved = count_places(tally, places(fleet))
    names = ("answered", "asked_again", "failed_when_begun", "lost")
    context.counts |= {f"{name}_{each}": tally.counts[each] for each in names}
    context.counts |= {f"{name}_conversations": n_all, f"{name}_moved": moved}
    share = stayed / max(1, stayed + moved)
    context.figures[f"{name}_stayed"] = round(share, 3)
    context.measure(f"{name}_first", tally.first_s)


def _with_models(context: Context) -> None:
    """Hold some conversations with two daemons that compute."""
    backend = llamacpp(embedded_chat(), n_ctx=4096)
    tally, n_all = Tally(), 24
    with (
        TemporaryDirectory(prefix="fleet-") as path,
        fleet_of(Path(path), 2, backend) as fleet,
    ):
        token = add_token(fleet.tokens, "holder")
        with fleet.smg():
            trio.run(_hold, Talk(fleet.address, [token], "chat", tally), n_all)
        _report(context, tally, fleet, "models", n_all)
    later = [each for each in tally.cached if each]
    context.figures["models_cached_tokens"] = round(sum(later) / max(1, len(later)), 1)
    context.counts["models_prompts_cached"] = len(later)
    context.require(tally.counts["answered"] == 2 * n_all, f"{tally.samples}")
