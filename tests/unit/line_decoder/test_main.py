import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fuzz.corpus import SEEDS
from inferd.limits.line_decoder import DECODE_CPU_S
from inferd.line_decoder.decode import decode_large_line
from inferd.line_decoder.messages import (
    LENGTH_BYTES,
    RESULT_DECODER,
    SANDBOX_REPORT_DECODER,
    DecodeResult,
    DecodeTask,
    framed,
)
from inferd.sandbox import landlock
from inferd.sandbox.syscalls import this_machine

pytestmark = pytest.mark.slow

PROGRAM = ("-m", "inferd.line_decoder")
LINE = b'{"messages":[{"role":"user","content":"hello"}]}'
SURFACES: dict[str, list[bytes]] = {
    "text": [*SEEDS["v1"]],
    "blocks": [*SEEDS["v2"]],
    "embed": [*SEEDS["embed"]],
    "rerank": [*SEEDS["rerank"]],
}


def receive(sock: socket.socket, n_bytes: int) -> bytes:
    return sock.recv(n_bytes, socket.MSG_WAITALL)


def message(sock: socket.socket) -> bytes:
    return receive(sock, int.from_bytes(receive(sock, LENGTH_BYTES), "little"))


def asking(kind: str, line: bytes) -> DecodeTask:
    return DecodeTask(kind=kind, n_bytes=len(line), seed=1, owner=7, marker="mark")


def answer_to(
    sock: socket.socket, line: bytes, kind: str = "text"
) -> tuple[DecodeResult, list[bytes]]:
    sock.sendall(framed(asking(kind, line)) + line)
    answer = RESULT_DECODER.decode(message(sock))
    return answer, [receive(sock, each) for each in answer.sections]


@contextmanager
def started(*program: str) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """A process that reads lines, before it has said anything."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            numbers = (str(theirs.fileno()), str(os.getpid()))
            process = subprocess.Popen(
                [sys.executable, *(program or PROGRAM), *numbers],
                pass_fds=[theirs.fileno()],
            )
        with process:
            try:
                yield ours, process
            finally:
                ours.close()


@contextmanager
def running(*program: str) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """A process that reads lines, in its sandbox."""
    with started(*program) as (sock, process):
        message(sock)
        yield sock, process


def test_it_reads_line_after_line_and_ends_with_the_socket():
    with running() as (sock, process):
        for _ in range(2):
            answer, [content] = answer_to(sock, LINE)
            assert answer.request is not None
            assert b"hello" in content
        assert answer_to(sock, b"x")[0].failure is not None
        sock.close()
        assert process.wait(90) == 0


def test_it_reports_its_sandbox_first():
    with started() as (sock, process):
        boxed = SANDBOX_REPORT_DECODER.decode(message(sock))
        status = Path(f"/proc/{process.pid}/status").read_text()
        files = [*Path(f"/proc/{process.pid}/fd").iterdir()]
    assert boxed.landlock == landlock.version()
    assert boxed.seccomp is (this_machine() is not None)
    assert boxed.is_complete
    facts = dict(line.split(":\t", 1) for line in status.splitlines())
    assert int(facts["Seccomp"]) == 2  # by a filter
    assert int(facts["NoNewPrivs"]) == 1
    assert {int(facts[f"Cap{each}"], 16) for each in ("Prm", "Eff", "Amb")} == {0}
    assert int(facts["Threads"]) == 1
    assert len(files) == 5  # what all have, the socket, and what tells of memory


def cut(line: bytes) -> Iterator[bytes]:
    """Give a line, and what may be left of it."""
    yield line
    yield from (line[:end] for end in range(0, len(line), 31))
    yield from (line[:at] + b"\xff" + line[at + 1 :] for at in range(0, len(line), 67))


@pytest.mark.parametrize("kind", SURFACES)
def test_its_results_are_the_same_in_the_sandbox(kind):
    with running() as (sock, process):
        for line in (each for seed in SURFACES[kind] for each in cut(seed)):
            answer, sections = answer_to(sock, line, kind)
            told = decode_large_line(asking(kind, line), line)
            assert answer == RESULT_DECODER.decode(framed(told.result)[LENGTH_BYTES:])
            assert sections == [*told.sections]
        assert process.poll() is None


FULL = """
import inferd.line_decoder.__main__ as program
program.RECYCLE_MEMORY_BYTES = 0
program.main()
"""


def test_one_that_has_grown_large_answers_and_ends():
    with running("-c", FULL) as (sock, process):
        assert answer_to(sock, LINE)[0].request is not None
        assert sock.recv(1) == b""
        assert process.wait(90) == 0


def test_the_kernel_ends_it_if_a_line_takes_too_long():
    with running() as (sock, process):
        soft, _ = resource.prlimit(process.pid, resource.RLIMIT_CPU)
        assert soft == resource.RLIM_INFINITY
        answer_to(sock, LINE)
        soft, _ = resource.prlimit(process.pid, resource.RLIMIT_CPU)
        assert soft >= DECODE_CPU_S


PARENT = """
import os, socket, subprocess, sys
ours, theirs = socket.socketpair()
numbers = (str(theirs.fileno()), str(os.getpid()))
process = subprocess.Popen(
    [sys.executable, "-m", "inferd.line_decoder", *numbers], pass_fds=[theirs.fileno()]
)
ours.recv(4, socket.MSG_WAITALL)
print(process.pid, flush=True)
os.kill(process.pid, 19)
sys.stdin.read()
"""


def test_it_dies_with_its_parent_even_where_it_reads_no_more():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        parent.kill()
        try:
            rest, _ = parent.communicate(timeout=90)  # the process holds stdout, too
        except subprocess.TimeoutExpired:
            os.kill(pid, signal.SIGKILL)
            raise
        assert rest == b""
