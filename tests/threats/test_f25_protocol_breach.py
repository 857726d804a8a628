from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
import trio
import trio.testing

from inferd.backend.job import GenerateJob, Sampling, Turn
from inferd.config.kinds.mock import MockSettings
from inferd.config.settings import LimitSettings
from inferd.engine.engine import Engine
from inferd.errors import BackendUnavailableError
from inferd.ipc.encoding import encode
from inferd.ipc.worker import Embedded, Ended, Failed, Heartbeat, PromptReady, Run, Step
from inferd.limits.engine import MAX_IPC_MESSAGE_BYTES
from inferd.server.telemetry.status import StatusBoard
from inferd.wire.responses import Usage
from tests.fakes.memory_coordinator import unlimited_coordinator
from tests.fakes.starting import start_of
from tests.fakes.worker import FakeWorker, Workers, ended

ANSWER_BYTES = 64 * 1024
JOB = GenerateJob(
    turns=[Turn("user", "hi")],
    max_tokens=100,
    sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "little") + payload


def ending(usage: Usage) -> bytes:
    return encode(Step(ended=[Ended(ticket=1, stop_reason="end", usage=usage)]))


END = encode(Step(ended=[ended(1, 1)]))
LIES = {
    "a length that no message has": b"\xff\xff\xff\xff",
    "a length just over": (MAX_IPC_MESSAGE_BYTES + 1).to_bytes(4, "little"),
    "nothing": framed(b""),
    "garbage": framed(b"\xc1" * 5),
    "a list as long as memory": framed(b"\xdd\xff\xff\xff\xff"),
    "more scores than there are documents": framed(
        b"\x83\xa4type\xa6Scored\xa6ticket\x01\xa6scores\xdd\x00\x10\x00\x00"
        + b"\x01" * 2**20
    ),
    "more pieces than a step has": encode(Step(pieces=[(1, b"")] * (2**16 + 1))),
    "lists in lists": framed(b"\x91" * 100_000),
    "a message that there is not": framed(msgspec.msgpack.encode({"type": "Shutdown"})),
    "a message of ours": encode(Run(ticket=1)),
    "a job that there never was": encode(Step(pieces=[(10**9, b"x")])),
    "a ticket below zero": encode(Step(pieces=[(-1, b"x")])),
    "a second answer to the prompt": encode(PromptReady(ticket=1, prompt_tokens=3)),
    "more tokens than the context has": ending(Usage(3, 2**40)),
    "counts below zero": ending(Usage(-1, -1)),
    "a prompt that was cached twice": ending(Usage(3, 1, 7)),
    "frames in vectors": encode(Embedded(ticket=1, embeddings=b"[]\n", dimensions=1)),
    "a failure of nobody's job": encode(Failed(ticket=9, reason="no")),
    "chatter without end": encode(Heartbeat()) * 60_000,
    "progress of nothing without end": encode(Step(n_read=1)) * 60_000,
    "an answer without end": encode(Step(pieces=[(1, b"x" * 1024)])) * 100,
    "tokens of nothing without end": encode(Step(pieces=[(1, b"")] * 2000)),
}
LATE_LIES = {
    "an end twice": END + END,
    "words after the end": END + encode(Step(pieces=[(1, b"x")])),
    "a failure after the end": END + encode(Failed(ticket=1, reason="no")),
}


def make_engine() -> Engine:
    limits = LimitSettings()
    return Engine(
        start_of(MockSettings(name="chat"), n_slots=2, limits=limits),
        limits=limits,
        coordinator=unlimited_coordinator("chat"),
        observer=StatusBoard(),
    )


async def ask(engine: Engine, outcomes: list[str]) -> None:
    try:
        async with engine.prepare(JOB) as prepared, engine.generate(prepared) as stream:
            async for _ in stream:
                pass
        outcomes.append("done")
    except BackendUnavailableError as error:
        outcomes.append(str(error))


async def say(worker: FakeWorker, data: bytes) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await worker.say_raw(data)


@asynccontextmanager
async def running_request(
    engine: Engine, workers: Workers, outcomes: list[str]
) -> AsyncIterator[tuple[trio.Nursery, FakeWorker]]:
    """Have a request run while inside; give who has to answer it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(engine.run, lambda: None)
        worker = await workers.next_ready()
        nursery.start_soon(ask, engine, outcomes)
        await worker.prepare()
        await worker.expect(Run)
        yield nursery, worker
        nursery.cancel_scope.cancel()


async def breach(engine: Engine, workers: Workers, data: bytes) -> list[str]:
    """Lie while a request runs; give what it got, and what the next one does."""
    outcomes: list[str] = []
    async with running_request(engine, workers, outcomes) as (nursery, liar):
        nursery.start_soon(say, liar, data)
        successor = await workers.next_ready()
        assert [each.process.pid for each in workers.living] == [1001]
        nursery.start_soon(ask, engine, outcomes)
        await successor.prepare()
        await successor.run(b"true")
        await trio.testing.wait_all_tasks_blocked()
    return outcomes


async def test_a_worker_that_beats_and_never_answers_is_ended(
    monkeypatch, autojump_clock
):
    workers = Workers()
    monkeypatch.setattr("inferd.engine.engine.start_worker", workers.start)
    engine = make_engine()
    outcomes: list[str] = []
    with trio.fail_after(1000):
        async with running_request(engine, workers, outcomes) as (_, liar):
            while not outcomes:
                await say(liar, encode(Heartbeat()))
                await trio.sleep(1)
    assert outcomes == ["the worker is gone: hung: no progress for 60 s"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LIES, *LATE_LIES])
async def test_a_breach_is_a_crash_of_the_worker_that_commits_it(
    name, monkeypatch, autojump_clock
):
    workers = Workers()
    monkeypatch.setattr(
        "inferd.engine.channel.validator.JOB_ANSWER_BYTES", ANSWER_BYTES
    )
    monkeypatch.setattr("inferd.engine.engine.start_worker", workers.start)
    engine = make_engine()
    with trio.fail_after(1000):
        told, served = await breach(engine, workers, {**LIES, **LATE_LIES}[name])
    if name in LIES:
        assert told == "the worker is gone: broke the protocol"
    else:
        assert told == "done"  # before the breach
    assert served == "done"
