"""R3: a worker that reads address zero: a real crash, not a signal from outside.

The crash is let in by ``sitecustomize``, which every Python process of the daemon
imports: in a worker it waits for SIGUSR1, and then has C code follow a null pointer.
"""

import os
import signal
from pathlib import Path
from typing import Final

import trio

from tests.daemon.harness import mock
from torture.clients import Answer, ask, text
from torture.infection import infected_environ
from torture.litter import check_left, settled
from torture.load import eventually
from torture.outcome import Context, SkippedError
from torture.victim import Victim, running

KEY: Final = "R3"
NAME: Final = "A worker that crashes in native code"

CRASH: Final = """\
import ctypes
import signal
import sys

if "inferd.worker.mock" in sys.orig_argv:
    signal.signal(signal.SIGUSR1, lambda *_: ctypes.string_at(0))
"""
ENDLESS: Final = mock(tokens=["x"] * 100_000, token_delay_ms=2)
GONE: Final = "the worker is gone: killed by SIGSEGV"
ASK_EVERY_S: Final = 0.005


def run(context: Context) -> None:
    """Have it crash while a request runs; the other sockets answer meanwhile."""
    with infected_environ(CRASH) as environ:
        config = {"backend": [ENDLESS], "admission": {"max_active": 2}}
        with running(Victim(config, environ=environ)) as daemon:
            [worker] = daemon.workers()
            if not _catches(worker, signal.SIGUSR1):
                raise SkippedError("the worker's environment lets no crash in")
            before, pid = settled(daemon), daemon.pid
            for _ in range(context.pick(short=2, full=50)):
                trio.run(_crash, context, daemon)
            context.require(daemon.is_running and daemon.pid == pid, "the daemon died")
            check_left(context, daemon, before)


def _catches(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    [mask] = (line.split()[1] for line in status.splitlines() if "SigCgt" in line)
    return bool(int(mask, 16) >> (number - 1) & 1)


async def _crash(context: Context, daemon: Victim) -> None:
    answers: list[Answer] = []
    heard: list[object] = []
    waits: list[float] = []

    async def be_answered() -> None:
        question = text("hello", max_tokens=100_000)
        answers.append(await ask(daemon.directory, question, "r", heard=heard.append))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(be_answered)
        await eventually(lambda: bool(heard))
        [worker] = daemon.workers()
        os.kill(worker, signal.SIGUSR1)
        while not answers:
            waits.append(await _refusal_s(daemon))
            await trio.sleep(ASK_EVERY_S)
    again = await ask(daemon.directory, text("hello", max_tokens=2), "again")
    context.require(again.is_whole and not again.code, f"then: {again.last}")
    context.require(answers[0].is_whole, f"the crash cost {answers[0].n_terminal} ends")
    context.require(answers[0].last.get("message") == GONE, str(answers[0].last))
    context.counts["crashes"] = context.counts.get("crashes", 0) + 1
    slowest = max([context.figures.get("others_max_ms", 0), *(1000 * s for s in waits)])
    context.figures["others_max_ms"] = round(slowest, 1)


async def _refusal_s(daemon: Victim) -> float:
    """Ask for what no worker is needed for; give how long it took."""
    answer = await ask(daemon.directory, text("hello", top_p=0), "refused")
    return answer.seconds
