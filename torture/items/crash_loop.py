"""R4: a worker that dies at every load, until its model is repaired."""

import os
import shutil
import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from tests.daemon.harness import llamacpp
from tests.model.tiny import write_tiny_model
from torture.clients import Answer, ask, text
from torture.litter import check_left, settled
from torture.outcome import Context
from torture.victim import Victim, running

KEY: Final = "R4"
NAME: Final = "A worker that dies at load again and again, then is repaired"

BREAKER_DEATHS: Final = 3
BREAKER_OPEN_S: Final = 1.0
LIMITS: Final = {"breaker_deaths": BREAKER_DEATHS, "breaker_open_s": BREAKER_OPEN_S}
MAX_REFUSAL_MS: Final = 1000.0
NOT_READY: Final = "backend not ready: "
QUESTION: Final = text("hello", max_tokens=2, temperature=0)


def run(context: Context) -> None:
    """Break the model's file, kill its worker, look, and repair it."""
    with TemporaryDirectory(prefix="models-") as directory:
        model = write_tiny_model(Path(directory) / "chat.gguf")
        shutil.copy(model, keep := Path(directory) / "keep.gguf")
        with running(
            Victim({"backend": [llamacpp(model)], "limits": LIMITS})
        ) as daemon:
            before = settled(daemon)
            for _ in range(context.pick(short=1, full=20)):
                _break_and_repair(context, daemon, model, keep)
            check_left(context, daemon, before)


def _break_and_repair(
    context: Context, daemon: Victim, model: Path, keep: Path
) -> None:
    with daemon.admin() as operator:
        operator.until("ready")
        _replace(model, keep.read_bytes()[:1000])
        [worker] = daemon.workers()
        os.kill(worker, signal.SIGKILL)
        *loop, broken = operator.until("restarting", phase="breaker_open")
        pauses = [
            frame["retry_in_s"] for frame in loop if frame.get("phase") == "backoff"
        ]
        context.require(pauses == sorted(pauses), f"the pauses shrink: {pauses}")
        context.require(broken["reason"], "the breaker opens without a reason")
        refusals = _ask_some(daemon)
        backends = operator.order("backends")["backends"]
        context.require(backends[0].get("unavailable"), "admin does not say why")
        _replace(model, keep.read_bytes())
        operator.until("ready")
    _judge(context, refusals, model, reason=broken["reason"])
    [whole] = _ask_some(daemon, n_times=1)
    context.require(whole.is_whole and not whole.code, f"repaired: {whole.last}")
    context.counts["loops"] = context.counts.get("loops", 0) + 1


def _replace(model: Path, data: bytes) -> None:
    """Put another file in its place: the one that is mapped stays whole."""
    beside = model.with_suffix(".new")
    beside.write_bytes(data)
    beside.replace(model)


def _ask_some(daemon: Victim, *, n_times: int = 5) -> list[Answer]:
    async def ask_each() -> list[Answer]:
        names = [f"r{at}" for at in range(n_times)]
        return [await ask(daemon.directory, QUESTION, name) for name in names]

    return trio.run(ask_each)


def _judge(
    context: Context, refusals: list[Answer], model: Path, *, reason: str
) -> None:
    """See that clients are told as much as the operator, but for the path."""
    for answer in refusals:
        told = answer.last.get("message", "").removeprefix(NOT_READY)
        context.require(
            answer.code == "backend_unavailable"
            and reason.replace(f" {model}", "").startswith(told),
            f"while the breaker is open: {answer.last}",
        )
    slowest = max(answer.seconds for answer in refusals) * 1000
    context.require_within(slowest, MAX_REFUSAL_MS, "the slowest refusal")
    known = context.figures.get("refusal_max_ms", 0)
    context.figures["refusal_max_ms"] = round(max(known, slowest), 1)
    context.counts["refusals"] = context.counts.get("refusals", 0) + len(refusals)
