import errno
import os
import signal
import subprocess
import sys

import msgspec
import pytest
import trio
import trio.testing

from inferd.engine import preparation as module
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


async def test_one_whose_fork_died_over_nothing_is_out_of_step(process):
    path = trio.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (fork := await path.read_text()):
        await trio.lowlevel.checkpoint()
    os.kill(int(fork), signal.SIGKILL)
    with pytest.raises(PreparationGoneError):
        await process.ask(asking(1))


async def test_one_whose_fork_takes_no_job_is_gone(process, monkeypatch):
    monkeypatch.setattr(module, "_TAKE_S", 0.1)
    path = trio.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (fork := await path.read_text()):
        await trio.lowlevel.checkpoint()
    os.kill(int(fork), signal.SIGSTOP)
    with pytest.raises(PreparationGoneError, match="takes no job"):
        await process.ask(asking(1))


async def test_one_that_is_closed_meanwhile_is_gone(process):
    async def ask():
        with pytest.raises(PreparationGoneError):
            await process.ask(asking(1, ENDLESS, "json_schema"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        await process._stream.aclose()  # as ``aclose`` does, before the task has run


def out_of_descriptors(*_):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


async def test_one_is_reaped_where_no_descriptor_is_left_and_once(process, monkeypatch):
    monkeypatch.setattr(os, "pidfd_open", out_of_descriptors)
    for _ in range(2):
        await process.aclose()
        assert process._spawned.popen.returncode == -signal.SIGKILL


async def test_what_it_cannot_learn_from_is_its_end():
    with trio.fail_after(PATIENCE_S):
        process = Preparation()
        with pytest.raises(PreparationGoneError):
            await process.learn(Learn(facts=b"none"))
        await process.aclose()


GOES_ON = """
def serve_one(line, known, has_job):
    while True:
        asked, _ = line.receive()
        has_job[0] = 1
        line.send(m.Took(ticket=asked.ticket))
        line.send(m.answer_to(asked, known, line.send))
"""
SAYS_MORE = """
def serve_one(line, known, has_job):
    asked, _ = line.receive()
    has_job[0] = 1
    said = m.answer_to(asked, known, lambda _: None)
    for ticket in (asked.ticket, asked.ticket + 1):
        line.send(m.Took(ticket=ticket))
        line.send(m.msgspec.structs.replace(said, ticket=ticket))
    m.os._exit(0)
"""


@pytest.mark.parametrize(
    "taken_over", [GOES_ON, SAYS_MORE], ids=["goes on", "says more"]
)
async def test_a_fork_that_is_taken_over_has_no_say_in_the_next_job(
    monkeypatch, taken_over
):
    real = subprocess.Popen
    program = (
        f"from inferd.worker.llama import preparer as m\n{taken_over}\n"
        "m.serve_one = serve_one\nm.main()"
    )

    def start(command, **options):
        return real([sys.executable, "-P", "-c", program, *command[-2:]], **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(module, "_END_S", 0.2)
    with trio.fail_after(PATIENCE_S):
        process = Preparation()
        await process.learn(Learn(facts=FACTS, words=WORDS))
        assert isinstance(await process.ask(asking(1)), Wrote)
        with pytest.raises(PreparationGoneError, match="goes on after its job"):
            await process.ask(asking(2))
        await process.aclose()
