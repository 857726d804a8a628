import ast
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from io import FileIO
from pathlib import Path

import pytest
import trio
import trio.testing

from inferd.backend.job import GenerateJob, Sampling, Turn
from inferd.config.kinds.mock import MockSettings
from inferd.config.settings import LimitSettings
from inferd.engine.engine import Engine
from inferd.engine.supervisor.process import WorkerProcess
from inferd.engine.supervisor.spawn import SpawnedProcess
from inferd.errors import BackendUnavailableError
from inferd.ipc.worker import Run
from inferd.server.telemetry.status import StatusBoard
from tests.daemon.harness import MakeDaemon, blocks, eventually, generate, llamacpp
from tests.fakes.memory_coordinator import unlimited_coordinator
from tests.fakes.source import calls, modules, names
from tests.fakes.starting import start_of
from tests.fakes.streams import open_pair
from tests.fakes.worker import Workers
from tests.model.tiny import write_tiny_bert, write_tiny_model

SECRET = "correct horse"
CRASH = "/src/ggml.c:1234: GGML_ASSERT(n > 0) failed"
GRAMMAR_ERROR = [
    "parse: error parsing grammar: expecting newline or end at",
    f'root ::= "{SECRET}"',
    f"{SECRET} error",
    f"llama_grammar_init_impl: error: {SECRET}",
]


@asynccontextmanager
async def process_that_says(lines: Sequence[str]) -> AsyncIterator[WorkerProcess]:
    """A worker's stderr with these lines, when it is heard."""
    words = "".join(f"{line}\n" for line in lines)
    command = ["sh", "-c", 'printf %s "$0" >&2', words]
    with subprocess.Popen(  # noqa: ASYNC220
        command, stderr=subprocess.PIPE, process_group=0
    ) as popen:
        async with open_pair() as (stream, _):
            with socket.socket() as sock, FileIO(os.pidfd_open(popen.pid)) as pidfd:
                yield WorkerProcess(SpawnedProcess(popen, sock, pidfd), stream)


async def test_what_native_code_prints_while_it_serves_is_forgotten():
    async with process_that_says(GRAMMAR_ERROR) as process:
        process.redact_stderr()
        await process.read_stderr()
        assert process.error_line == ""
        assert SECRET not in str(process._lines)


async def test_what_native_code_says_of_its_own_source_is_kept():
    async with process_that_says([*GRAMMAR_ERROR, CRASH, SECRET]) as process:
        process.redact_stderr()
        await process.read_stderr()
        assert process.error_line == CRASH
        assert SECRET not in str(process._lines)


async def test_before_it_serves_an_error_is_kept():
    async with process_that_says(["error: no memory"]) as process:
        await process.read_stderr()
        assert process.error_line == "error: no memory"


@pytest.fixture
def job():
    return GenerateJob(
        turns=[Turn("user", SECRET)],
        max_tokens=10,
        sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
    )


async def test_no_line_of_it_reaches_a_client(job, monkeypatch, autojump_clock):
    workers = Workers()
    monkeypatch.setattr("inferd.engine.engine.start_worker", workers.start)
    limits = LimitSettings(breaker_deaths=1)
    settings = MockSettings(name="chat")
    engine = Engine(
        start_of(settings, n_slots=1, limits=limits),
        limits=limits,
        coordinator=unlimited_coordinator(settings.name),
        observer=StatusBoard(),
    )
    errors: list[str] = []

    async def ask():
        try:
            async with (
                engine.prepare(job) as prepared,
                engine.generate(prepared) as stream,
            ):
                [_ async for _ in stream]
        except BackendUnavailableError as error:
            errors.append(str(error))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(engine.run, lambda: None)
        worker = await workers.next_ready()
        nursery.start_soon(ask)
        await worker.prepare()
        await worker.expect(Run)
        assert worker.process.holds_client_text
        worker.process.error_line = CRASH
        worker.die(-signal.SIGABRT)
        await trio.testing.wait_all_tasks_blocked()
        await ask()
        nursery.cancel_scope.cancel()
    assert errors == [
        "the worker is gone: killed by SIGABRT",
        "backend not ready: killed by SIGABRT",
    ]


# --- where the operator keeps files -----------------------------------------------------


def test_no_line_for_clients_is_made_with_a_path():
    lines = [
        call.args["of_file" in ast.unparse(call.func)]
        for name, tree in modules("LoadError|of_file")
        if name.startswith("worker/llama/")
        for call in calls(tree, "LoadError", "of_file")
    ]
    assert len(lines) > 20
    said = {name for line in lines for name in names(line)}
    assert not {name for name in said if name.endswith("path")}


def without_template(path: Path) -> None:
    path.unlink()  # a worker has it mapped
    write_tiny_model(path, template=None)


def garbage(path: Path) -> None:
    path.unlink()
    path.write_text("no model")


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize(
    ("leaf", "request_", "write", "damage", "told"),
    [
        ("infer.sock", generate(), write_tiny_model, Path.unlink, "not found"),
        ("infer.v2.sock", blocks(), write_tiny_model, without_template, "no chat temp"),
        ("infer.embed.sock", {"input": ["a"]}, write_tiny_bert, garbage, "not a GGUF"),
    ],
)
def test_a_file_that_breaks_between_restarts_is_named_to_the_operator_alone(  # noqa: PLR0913, PLR0917
    leaf, request_, write, damage, told, make_daemon: MakeDaemon, tmp_path
):
    path = write(tmp_path / "private.gguf")
    limits = {"breaker_deaths": 2, "breaker_open_s": 60}
    daemon = make_daemon({"backend": [llamacpp(path)], "limits": limits}).start()
    listener = daemon.admin()
    damage(path)
    daemon.kill_worker()
    died = listener.until("restarting", phase="breaker_open")[-1]
    assert str(path) in died["reason"]
    assert eventually(lambda: str(path) in daemon.stderr())
    with daemon.connect(leaf) as client:
        [refusal] = client.ask({"id": "r", **request_})
    assert refusal["code"] == "backend_unavailable"
    assert told in refusal["message"]
    assert "/" not in refusal["message"]
    assert path.stem not in refusal["message"]
