"""R14: the wall clock jumps an hour ahead and a day back while answers stream.

Where libfaketime is not installed, Python's own functions are told another time instead:
that is all by which daemon and worker could ask for it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from tests.daemon.harness import mock
from torture.clients import Answer, ask, text, typed
from torture.infection import infected_environ
from torture.litter import check_left, settled
from torture.outcome import MS, Context
from torture.victim import Victim, running

KEY: Final = "R14"
NAME: Final = "A wall clock that jumps"

LIBRARY: Final = "usr/lib/*/faketime/libfaketimeMT.so.1"
PATCH: Final = """\
import os
import time

_time_ns = time.time_ns


def time_ns():
    with open(os.environ["FAKETIME_TIMESTAMP_FILE"]) as file:
        return _time_ns() + int(file.read() or 0) * 10**9


time.time_ns = time_ns
time.time = lambda: time_ns() / 10**9
"""
JUMPS: Final = ("+3600", "-86400", "+0")
"""Seconds from the real time, one after another."""
N_TOKENS: Final = 100
TOKEN_S: Final = 0.01
JUMP_AFTER_S: Final = 0.2
SLACK_S: Final = 30.0
"""What an answer may take longer: the clocks jump by much more."""
NS: Final = 10**9
CONFIG: Final = {
    "backend": [mock(tokens=["x"] * N_TOKENS, token_delay_ms=int(TOKEN_S * MS))],
    "admission": {"max_active": 4},
    "limits": {"worker_silence_s": 5},
}


def run(context: Context) -> None:
    """Have answers with a deadline stream across every jump."""
    with TemporaryDirectory(prefix="clock-") as place, _fakery(context) as environ:
        where = Path(place) / "offset"
        where.write_text("+0")
        environ["FAKETIME_TIMESTAMP_FILE"] = str(where)
        with running(Victim(CONFIG, environ=environ)) as daemon:
            before = settled(daemon)
            for _ in range(context.pick(short=1, full=30)):
                trio.run(_stream_across, context, daemon, where)
            check_left(context, daemon, before)


@contextmanager
def _fakery(context: Context) -> Iterator[dict[str, str]]:
    """Give the variables by which a daemon believes in another time."""
    for library in Path("/").glob(LIBRARY):
        yield {
            "LD_PRELOAD": str(library),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        return
    context.notes.append("without libfaketime: by Python's own functions alone")
    with infected_environ(PATCH) as environ:
        yield environ


async def _stream_across(context: Context, daemon: Victim, where: Path) -> None:
    for jump in JUMPS:
        answers: list[Answer] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_ask_both, daemon, answers)
            await trio.sleep(JUMP_AFTER_S)
            _set(where, jump)
        for answer in answers:
            _judge(context, answer, jump)
        context.counts["jumps"] = context.counts.get("jumps", 0) + 1
        await _see_jump(context, daemon, jump)


def _set(where: Path, jump: str) -> None:
    """Let no reader see half of it."""
    beside = where.with_suffix(".new")
    beside.write_text(jump)
    beside.replace(where)


async def _ask_both(daemon: Victim, answers: list[Answer]) -> None:
    async def ask_one(request_id: str) -> None:
        is_typed = request_id == "typed"
        question = typed("hello", deadline_ms=60_000) if is_typed else text("hello")
        answers.append(await ask(daemon.directory, question, request_id))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_one, "typed")
        nursery.start_soon(ask_one, "text")


def _judge(context: Context, answer: Answer, jump: str) -> None:
    timing = answer.last.get("timing", {})
    is_whole = answer.is_whole and not answer.code and "detail" not in answer.last
    context.require(is_whole, f"{jump}: {answer.last}")
    total_ms = timing.get("total_ms", -1)
    is_sane = 0 < total_ms < (N_TOKENS * TOKEN_S + SLACK_S) * MS
    context.require(is_sane, f"{jump}: the answer took {total_ms} ms by its own count")
    took_ns = timing.get("finished_ns", 0) - timing.get("arrived_ns", 0)
    is_sane = 0 < took_ns < SLACK_S * NS
    context.require(is_sane, f"{jump}: it ended {took_ns} ns after it came")


async def _see_jump(context: Context, daemon: Victim, jump: str) -> None:
    """See that the daemon believes it: else nothing was tried."""
    answer = await ask(daemon.directory, text("hello", max_tokens=1), "what time")
    arrived_ns = answer.last.get("timing", {}).get("arrived_ns", 0)
    ahead_s = arrived_ns / NS - time.time()
    context.figures[f"daemon_ahead_{jump}_s"] = round(ahead_s)
    is_there = abs(ahead_s - int(jump)) < SLACK_S
    context.require(is_there, f"{jump}: the daemon is {ahead_s:.0f} s ahead")
