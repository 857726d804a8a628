import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import FileIO
from pathlib import Path

import pytest
import trio
from hypothesis import given, strategies as st

from inferd.config.kinds.mock import MockSettings
from inferd.engine.supervisor.process import (
    STDERR_DRAIN_S,
    WorkerProcess,
    describe_exit,
    start_worker,
)
from inferd.engine.supervisor.spawn import SpawnedProcess
from inferd.ipc.encoding import MessageSplitter, decode_from_worker, encode
from inferd.ipc.worker import FromWorker, Load, Loaded, Loading, SandboxReport
from inferd.limits.engine import NATIVE_LOG_BYTES_PER_S
from tests.cases import each_case
from tests.fakes.starting import MOCK_PROGRAM
from tests.fakes.streams import open_pair

LOAD = Load(settings=MockSettings(name="m"), n_slots=1)
CLIENTS_WORDS = "parse: error at the client's own words"


@each_case(
    ("code", "words"),
    [
        *((0, "exited with code 0"), (70, "exited with code 70")),
        *(
            (-signal.SIGKILL, "killed by SIGKILL"),
            (-signal.SIGSEGV, "killed by SIGSEGV"),
        ),
    ],
)
def test_an_exit_is_described(code, words):
    assert describe_exit(code) == words


@given(st.integers(-64, 255))
def test_every_exit_has_a_description(code):
    assert describe_exit(code).startswith("killed by" if code < 0 else "exited with")


# --- what it says on stderr -------------------------------------------------------------


def talker(words: bytes) -> subprocess.Popen[bytes]:
    """A process that says its words on stderr and ends."""
    popen = subprocess.Popen(
        ["sh", "-c", "cat >&2"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    assert popen.stdin
    popen.stdin.write(words)
    popen.stdin.close()
    return popen


@asynccontextmanager
async def talking(words: bytes) -> AsyncIterator[WorkerProcess]:
    """A process that says no more than a pipe holds, and ends unheard."""
    popen = talker(words)
    with socket.socket() as sock, FileIO(os.pidfd_open(popen.pid)) as pidfd:
        async with open_pair() as (stream, _):
            yield WorkerProcess(SpawnedProcess(popen, sock, pidfd), stream)
    assert popen.stderr
    popen.stderr.close()


async def heard(*lines: str | bytes, is_serving: bool = False) -> WorkerProcess:
    """Hear a process to its end."""
    words = [line.encode() if isinstance(line, str) else line for line in lines]
    async with talking(b"\n".join(words)) as process:
        if is_serving:
            process.redact_stderr()
        await process.read_stderr()
        assert await process.wait() == 0
    return process


@each_case(
    ("lines", "complaint"),
    [
        ([], ""),
        (["loading", "done", ""], ""),
        (["Error: first", "error: second", "fine", ""], "error: second"),
        (
            ["x.c:1: GGML_ASSERT(n) failed", "backtrace", ""],
            "x.c:1: GGML_ASSERT(n) failed",
        ),
        (["terminate called after throwing"], "terminate called after throwing"),
        (["  ERROR  ", ""], "ERROR"),
        ([b"error: \xff", ""], "error: \N{REPLACEMENT CHARACTER}"),
    ],
)
async def test_the_error_line_is_the_last_line_with_an_error(lines, complaint):
    assert (await heard(*lines)).error_line == complaint


async def test_only_the_last_lines_are_kept():
    assert (await heard("error", *["fine"] * 39)).error_line == "error"
    assert (await heard("error", *["fine"] * 40)).error_line == ""


async def test_a_long_line_is_cut():
    process = await heard("error " + "x" * 50_000, "fine")
    assert len(process.error_line) <= 1024


async def test_endless_stderr_is_read_at_a_bounded_rate(autojump_clock):
    began_at = trio.current_time()
    process = await heard("error", *[""] * 50_000, "error: late")
    assert process.error_line == "error: late"
    assert trio.current_time() - began_at >= 50_000 / NATIVE_LOG_BYTES_PER_S


async def test_a_long_line_hides_no_later_one():
    process = await heard("x" * 50_000, "error: late")
    assert process.error_line == "error: late"


@pytest.mark.parametrize(
    "crash",
    [
        "/src/ggml-cpu.c:2024: GGML_ASSERT(n_tasks > 0) failed",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "CUDA error: out of memory",
    ],
)
async def test_while_it_serves_only_a_crash_is_kept(crash):
    process = await heard(CLIENTS_WORDS, crash, CLIENTS_WORDS, is_serving=True)
    assert process.error_line == crash


@each_case(
    "line",
    [
        CLIENTS_WORDS,
        "parse error at: terminate called by a client",
        "parse error at: x.c:1: GGML_ASSERT(by a client)",
        "a GGML_ASSERT error without a place",
    ],
)
async def test_while_it_serves_no_client_text_is_kept(line):
    assert (await heard(line, is_serving=True)).error_line == ""


async def test_earlier_lines_are_dropped_when_it_serves():
    process = await heard("error: early")
    process.redact_stderr()
    assert process.error_line == ""


async def test_wait_reads_stderr_to_its_end(autojump_clock, nursery):
    async with talking(b"error: the end") as process:
        await process.reap()
        nursery.start_soon(listen_later, process)
        assert await process.wait() == 0
        assert process.error_line == "error: the end"


async def listen_later(process: WorkerProcess) -> None:
    await trio.sleep(STDERR_DRAIN_S / 2)
    await process.read_stderr()


async def test_stderr_that_does_not_end_is_not_waited_for(autojump_clock):
    async with talking(b"") as process:
        await process.reap()
        assert await process.wait() == 0
        assert trio.current_time() == STDERR_DRAIN_S


# --- a real worker ----------------------------------------------------------------------


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))  # noqa: PTH208  # iterdir would hold one open


def is_there(process: WorkerProcess) -> bool:
    """Whether it exists, if only to be reaped."""
    return Path(f"/proc/{process.pid}").exists()


async def test_leaving_kills_and_reaps_whatever_it_was_doing():
    before = descriptors()
    async with start_worker(MOCK_PROGRAM) as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert is_there(process)
    assert not is_there(process)
    assert descriptors() == before


async def test_a_cancelled_worker_is_killed_and_reaped():
    with trio.CancelScope() as scope:
        async with start_worker(MOCK_PROGRAM) as process:
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert not is_there(process)


async def test_waiting_can_be_cancelled_and_repeated():
    async with start_worker(MOCK_PROGRAM) as process:
        with trio.move_on_after(0) as scope:
            await process.wait()
        assert scope.cancelled_caught
        process.kill()
        assert await process.wait() == -signal.SIGKILL


async def test_a_worker_loads_when_it_is_told_to():
    answers: list[FromWorker] = []
    splitter = MessageSplitter()
    async with start_worker(MOCK_PROGRAM) as process:
        await process.stream.send_all(encode(LOAD))
        while not any(isinstance(answer, Loaded) for answer in answers):
            splitter.feed(await process.stream.receive_some(4096))
            answers += map(decode_from_worker, iter(splitter.next_payload, None))
    boxed, loading, _ = answers
    assert isinstance(boxed, SandboxReport)
    assert loading == Loading(phase="checking_local", path="(mock)")


async def test_a_worker_that_gets_nonsense_reports_it_and_exits():
    async with start_worker(MOCK_PROGRAM) as process:
        await process.stream.send_all(b"\x04\x00\x00\x00oops")
        assert await process.wait() == 1
        assert "MalformedMessageError" in process.error_line


@pytest.mark.parametrize("last_deed", ["time.sleep(60)", "os.abort()"])
async def test_what_a_worker_started_ends_with_it(last_deed, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", forking(tmp_path, last_deed))
    async with start_worker(MOCK_PROGRAM) as process:
        assert await process.stream.receive_some(1) == b"."
        if "sleep" in last_deed:
            process.kill()
        assert await process.wait() < 0
        with trio.fail_after(90):
            assert await process.stream.receive_some(1) == b""


def forking(directory: Path, last_deed: str) -> str:
    """Write a worker whose child holds its end of the socketpair, too."""
    program = directory / "worker"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys, time\n"
        "if os.fork() == 0:\n    time.sleep(60)\n"
        f"os.write(int(sys.argv[4]), b'.')\n{last_deed}\n"
    )
    program.chmod(0o700)
    return str(program)


async def test_a_worker_without_a_daemon_ends():
    async with start_worker(MOCK_PROGRAM) as process:
        await process.stream.aclose()
        assert await process.wait() > 0


async def test_without_descriptors_nothing_is_started_and_nothing_stays_open():
    def opened():
        fds = [fd for fd in Path("/proc/self/fd").iterdir() if fd.exists()]
        return {fd.name: str(fd.readlink()) for fd in fds}

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(first_free := os.dup(0))
    before, n_refused = opened(), 0
    for limit in range(first_free, first_free + 20):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            async with start_worker(MOCK_PROGRAM):
                break
        except OSError as error:
            n_refused += error.errno == errno.EMFILE
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert opened() == before
    assert n_refused >= 7
