import errno
import os
import signal
import subprocess
import sys

import msgspec
import pytest
import trio
import trio.testing

from inferd.backend.job import GenerateJob, Sampling, Structure, Turn
from inferd.engine.prepare import process as module
from inferd.engine.prepare.process import PreparerGoneError, PreparerProcess
from inferd.ipc.preparer import Configure, ForkExited, Render, Rendered, RenderRefused
from inferd.limits.connections import WRITE_BYTES

pytestmark = pytest.mark.slow

FACTS = msgspec.msgpack.encode({"template": None, "dialect": "chatml", "special": {}})
WORDS = msgspec.msgpack.encode(
    {
        "token_bytes": [*(bytes([n]) for n in range(256)), b"<end>"],
        "special": [256],
        "ends": [256],
    }
)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ENDLESS = msgspec.json.encode(
    {"type": "string", "allOf": [{"pattern": f".*{each}.*"} for each in LETTERS]}
).decode()
PATIENCE_S = 90.0


def asking(ticket, source="a+", kind="regex"):
    job = GenerateJob(
        turns=[Turn("user", "hi")],
        structure=Structure(kind=kind, source=source),
        max_tokens=3,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
    )
    return Render(ticket=ticket, job=job)


@pytest.fixture
async def process():
    with trio.fail_after(PATIENCE_S):
        process = PreparerProcess()
        await process.configure(Configure(prompt_format=FACTS, token_table=WORDS))
        yield process
        await process.aclose()
        assert not os.path.exists(f"/proc/{process.pid}")  # noqa: ASYNC240, PTH110


async def test_a_large_job_is_sent_in_parts(process, monkeypatch):
    send_all, sizes = process._stream.send_all, []

    async def count(data: bytes | memoryview) -> None:
        sizes.append(len(data))
        await send_all(data)

    monkeypatch.setattr(process._stream, "send_all", count)
    job = msgspec.structs.replace(
        asking(1).job, turns=[Turn("user", "x" * 10 * WRITE_BYTES)]
    )
    await process.render(Render(ticket=1, job=job))
    assert max(sizes) == WRITE_BYTES
    assert len(sizes) == 11


async def test_jobs_are_written_one_after_another(process):
    for ticket in range(3):
        assert isinstance(await process.render(asking(ticket)), Rendered)
    refused = await process.render(asking(3, "("))
    assert isinstance(refused, RenderRefused)
    assert process.grammar_field == "response_format.pattern"


async def test_a_job_that_takes_too_much_ends_its_fork_alone(process):
    ended = await process.render(asking(1, ENDLESS, "json_schema"))
    assert ended == ForkExited(code=-signal.SIGPROF)
    assert process.grammar_field == "response_format.schema"
    assert isinstance(await process.render(asking(2)), Rendered)


async def test_an_abandoned_job_ends_before_the_next(process):
    with trio.move_on_after(0.05):
        await process.render(asking(1, ENDLESS, "json_schema"))
        pytest.fail("it was refused at once")
    await process.wait_idle()
    assert isinstance(await process.render(asking(2)), Rendered)


async def test_one_that_is_killed_is_gone(process):
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(PreparerGoneError):
        await process.render(asking(1))


async def test_closing_fails_a_waiting_render(process, nursery):
    async def ask() -> None:
        with pytest.raises(PreparerGoneError):
            await process.render(asking(1, ENDLESS, "json_schema"))
        nursery.cancel_scope.cancel()

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked(0.05)
    await process._stream.aclose()


async def test_a_reply_from_an_unexpected_fork_is_an_error(process):
    path = trio.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (fork := await path.read_text()):
        await trio.lowlevel.checkpoint()
    os.kill(int(fork), signal.SIGKILL)
    with pytest.raises(PreparerGoneError):
        await process.render(asking(1))


async def test_a_fork_that_takes_no_job_is_an_error(process, monkeypatch):
    monkeypatch.setattr(module, "_RECEIPT_S", 0.1)
    path = trio.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (fork := await path.read_text()):
        await trio.lowlevel.checkpoint()
    os.kill(int(fork), signal.SIGSTOP)
    with pytest.raises(PreparerGoneError, match="takes no job"):
        await process.render(asking(1))


async def test_one_that_is_closed_meanwhile_is_gone(process):
    async def ask():
        with pytest.raises(PreparerGoneError):
            await process.render(asking(1, ENDLESS, "json_schema"))

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


async def test_a_malformed_configuration_ends_the_process():
    with trio.fail_after(PATIENCE_S):
        process = PreparerProcess()
        with pytest.raises(PreparerGoneError):
            await process.configure(Configure(prompt_format=b"none"))
        await process.aclose()


GOES_ON = """
def serve_one(line, known, has_job):
    while True:
        asked, _ = line.receive()
        has_job[0] = 1
        line.send(m.JobReceived(ticket=asked.ticket))
        line.send(m.response_to(asked, known, line.send))
"""
SAYS_MORE = """
def serve_one(line, known, has_job):
    asked, _ = line.receive()
    has_job[0] = 1
    said = m.response_to(asked, known, lambda _: None)
    for ticket in (asked.ticket, asked.ticket + 1):
        line.send(m.JobReceived(ticket=ticket))
        line.send(m.msgspec.structs.replace(said, ticket=ticket))
    m.os._exit(0)
"""


@pytest.mark.parametrize(
    "taken_over", [GOES_ON, SAYS_MORE], ids=["goes on", "says more"]
)
async def test_a_compromised_fork_cannot_answer_the_next_job(monkeypatch, taken_over):
    real = subprocess.Popen
    program = (
        f"from inferd.worker.llama.prepare import fork_server as m\n{taken_over}\n"
        "m.serve_one = serve_one\nm.main()"
    )

    def start(command, **options):
        return real([sys.executable, "-P", "-c", program, *command[-2:]], **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(module, "_FORK_EXIT_S", 0.2)
    with trio.fail_after(PATIENCE_S):
        process = PreparerProcess()
        await process.configure(Configure(prompt_format=FACTS, token_table=WORDS))
        assert isinstance(await process.render(asking(1)), Rendered)
        with pytest.raises(PreparerGoneError, match="goes on after its job"):
            await process.render(asking(2))
        await process.aclose()
