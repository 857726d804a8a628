import errno
import os
import signal

import msgspec
import pytest
import trio
import trio.testing

from inferd.engine.preparation import Preparation, PreparationGoneError
from inferd.job import GenerateJob, Sampling, Structure, Turn
from inferd.preparing import Ended, Learn, Unwritable, Write, Wrote

pytestmark = pytest.mark.slow

FACTS = msgspec.msgpack.encode({"template": None, "dialect": "chatml", "special": {}})
WORDS = msgspec.msgpack.encode(
    {
        "spelt": [*(bytes([n]) for n in range(256)), b"<end>"],
        "special": [256],
        "ends": [256],
    }
)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ENDLESS = msgspec.json.encode(
    {"type": "string", "allOf": [{"pattern": f".*{each}.*"} for each in LETTERS]}
).decode()
PATIENCE_S = 60.0


def asking(ticket, source="a+", kind="regex"):
    job = GenerateJob(
        turns=[Turn("user", "hi")],
        structure=Structure(kind=kind, source=source),
        max_tokens=3,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
    )
    return Write(ticket=ticket, job=job)


@pytest.fixture
async def process():
    with trio.fail_after(PATIENCE_S):
        process = Preparation()
        await process.learn(Learn(facts=FACTS, words=WORDS))
        yield process
        await process.aclose()
        assert not os.path.exists(f"/proc/{process.pid}")  # noqa: ASYNC240, PTH110


async def test_jobs_are_written_one_after_another(process):
    for ticket in range(3):
        assert isinstance(await process.ask(asking(ticket)), Wrote)
    refused = await process.ask(asking(3, "("))
    assert isinstance(refused, Unwritable)
    assert process.where == "response_format.pattern"


async def test_a_job_that_takes_too_much_ends_its_fork_alone(process):
    ended = await process.ask(asking(1, ENDLESS, "json_schema"))
    assert ended == Ended(code=-signal.SIGPROF)
    assert process.where == "response_format.schema"
    assert isinstance(await process.ask(asking(2)), Wrote)


async def test_what_nobody_waits_for_is_settled_before_the_next(process):
    with trio.move_on_after(0.05):
        await process.ask(asking(1, ENDLESS, "json_schema"))
        pytest.fail("it was refused at once")
    await process.settle()
    assert isinstance(await process.ask(asking(2)), Wrote)


async def test_one_that_is_killed_is_gone(process):
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(PreparationGoneError):
        await process.ask(asking(1))


async def test_one_that_is_closed_is_gone_for_who_waits_for_it(process, nursery):
    async def ask() -> None:
        with pytest.raises(PreparationGoneError):
            await process.ask(asking(1, ENDLESS, "json_schema"))
        nursery.cancel_scope.cancel()

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked(0.05)
    await process._stream.aclose()


async def test_one_is_ended_where_no_descriptor_is_left(monkeypatch):
    def no_descriptor(pid: int) -> int:
        raise OSError(errno.EMFILE, str(pid))

    process = Preparation()
    monkeypatch.setattr(os, "pidfd_open", no_descriptor)
    await process.aclose()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


async def test_one_whose_fork_died_over_nothing_is_out_of_step(process):
    path = trio.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (fork := await path.read_text()):
        await trio.lowlevel.checkpoint()
    os.kill(int(fork), signal.SIGKILL)
    with pytest.raises(PreparationGoneError):
        await process.ask(asking(1))


async def test_what_it_cannot_learn_from_is_its_end():
    with trio.fail_after(PATIENCE_S):
        process = Preparation()
        with pytest.raises(PreparationGoneError):
            await process.learn(Learn(facts=b"none"))
        await process.aclose()
