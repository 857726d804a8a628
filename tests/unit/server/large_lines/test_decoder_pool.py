import os
import shlex
import signal
import socket
import subprocess
import sys
from io import FileIO

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from inferd.engine.supervisor.spawn import SpawnedProcess
from inferd.errors import InvalidFrameError
from inferd.ipc.worker import SandboxReport
from inferd.limits.connections import WRITE_BYTES
from inferd.limits.protocol import MAX_FRAME_BYTES
from inferd.limits.server import OFFLOAD_LINE_BYTES
from inferd.line_decoder.messages import (
    LENGTH_BYTES,
    DecodeResult,
    DecodeTask,
    framed,
)
from inferd.server.event_loop.scheduler import LoopScheduler
from inferd.server.large_lines import decoder_pool
from inferd.server.large_lines.decoder_pool import DecoderPool, DecoderProcess
from inferd.wire.requests import CancelLine
from tests.fakes.writes import WriteSteps

LINE = b'{"id":"r","messages":[{"role":"user","content":"hello"}]}'

pytestmark = pytest.mark.slow

GREETING = """
import os, socket, sys
from inferd.line_decoder.messages import framed
from inferd.ipc.worker import SandboxReport
from inferd.wire.requests import CancelLine
sock = socket.socket(fileno=int(sys.argv[1]))
sock.sendall(framed(SandboxReport(landlock=1, seccomp=%r)))
sock.recv(1)
"""
"""A process that reports its sandbox, and exits at the first byte of a line."""
LYING = """
import socket, sys
from inferd.line_decoder.messages import DecodeFailure, DecodeResult, framed
from inferd.ipc.worker import SandboxReport
sock = socket.socket(fileno=int(sys.argv[1]))
sock.sendall(framed(SandboxReport(landlock=1, seccomp=True)) + ANSWER)
while sock.recv(1):
    pass
"""
"""A process that sends a result without reading the line, and then waits to be killed."""
PYTHON = sys.executable
SLEEPING = "import time; time.sleep(60)"


def ask_for(line: bytes, owner: int = 1) -> DecodeTask:
    return DecodeTask(kind="text", n_bytes=len(line), seed=1, owner=owner)


async def read(decoders: DecoderPool, line: bytes = LINE, owner: int = 1):
    return await decoders.read(ask_for(line, owner), [line], user=owner)


async def refused(decoders: DecoderPool) -> None:
    with pytest.raises(InvalidFrameError, match="or memory|going down"):
        await read(decoders)


@pytest.fixture
def run_instead(monkeypatch, tmp_path):
    """Have other code than a decoder's run in its place, until the next."""

    def use(code: str | None) -> None:
        program = tmp_path / "program"
        command = shlex.join([PYTHON, "-c", code or ""])
        program.write_text(f'#!/bin/sh\nexec {command} "$4"\n')
        program.chmod(0o700)
        path = PYTHON if code is None else str(program)
        monkeypatch.setattr("inferd.engine.supervisor.spawn.sys.executable", path)

    return use


async def test_one_process_reads_line_after_line_and_ends_with_its_owner():
    decoders = DecoderPool()
    with decoders.open():
        assert decoders.offload_line_bytes == OFFLOAD_LINE_BYTES
        for _ in range(3):
            decoded = await read(decoders)
            assert decoded.result.request is not None
            assert [len(each) for each in decoded.sections] == decoded.result.sections
        [decoder] = decoders._all
    with pytest.raises(ProcessLookupError):
        os.kill(decoder.pid, 0)


async def test_one_that_died_between_two_lines_is_replaced():
    decoders = DecoderPool()
    with decoders.open():
        await read(decoders)
        [decoder] = decoders._all
        os.kill(decoder.pid, signal.SIGKILL)
        assert (await read(decoders)).result.request is not None
        assert decoder not in decoders._all


@pytest.mark.parametrize("code", ["raise SystemExit", "print(1)", GREETING % True])
async def test_one_that_dies_over_a_line_loses_that_alone(code, run_instead):
    decoders = DecoderPool()
    with decoders.open():
        run_instead(code)
        with pytest.raises(InvalidFrameError, match="too much time or memory"):
            await read(decoders)
        run_instead(None)
        assert not decoders._all
        assert (await read(decoders)).result.request is not None


@pytest.mark.parametrize(
    "answer",
    [
        "framed(DecodeResult())",
        "framed(DecodeResult(cancel=CancelLine(id='r'), sections=[9]))",
        "framed(DecodeResult(failure=DecodeFailure('InvalidRequestError', 'no'), sections=[-1]))",
        "(2**31).to_bytes(4, 'little')",
        "b'\\x01\\0\\0\\0\\xff'",
    ],
)
async def test_a_process_with_an_invalid_result_is_killed_and_its_line_refused(
    answer, run_instead
):
    decoders = DecoderPool()
    with decoders.open():
        run_instead(LYING.replace("ANSWER", answer))
        with pytest.raises(InvalidFrameError, match="too much time or memory"):
            await read(decoders)
        assert not decoders._all
        run_instead(None)
        assert (await read(decoders)).result.request is not None


async def test_one_that_takes_too_long_is_killed(monkeypatch, run_instead):
    monkeypatch.setattr(decoder_pool, "DECODE_TIMEOUT_S", 0.01)
    run_instead(SLEEPING)
    decoders = DecoderPool()
    with decoders.open():
        with pytest.raises(InvalidFrameError, match="too much time"):
            await read(decoders)
        assert not decoders._all


class EagerSocket:
    """The socket to a process that reads as fast as it is written to.

    Args:
        steps: is told what is written.
        answer: is what the process has sent.
    """

    def __init__(self, steps: WriteSteps, answer: bytes) -> None:
        self._steps = steps
        self._answer = answer

    def setblocking(self, _: object) -> None:
        pass

    def send(self, data: memoryview) -> int:
        self._steps.offer(data)
        return len(data)

    def recv(self, n_bytes: int) -> bytes:
        data, self._answer = self._answer[:n_bytes], self._answer[n_bytes:]
        return data


async def test_no_step_offers_more_than_one_write_to_a_process(monkeypatch):
    parts = [bytearray(WRITE_BYTES)] * 50 + [bytearray(3 * WRITE_BYTES)]
    n_bytes = sum(map(len, parts))
    result = DecodeResult(cancel=CancelLine(id="r"))
    with WriteSteps().counting() as steps:
        sock = EagerSocket(steps, framed(result))
        spawned = SpawnedProcess(None, sock, None)  # type: ignore[arg-type]
        monkeypatch.setattr(decoder_pool, "spawn", lambda _: spawned)
        process = DecoderProcess(LoopScheduler())
        output = await process.read(ask_for(bytes(n_bytes)), parts)
    assert output.result == result
    assert max(steps.n_bytes.values()) == WRITE_BYTES
    assert steps.n_bytes.total() > n_bytes


@pytest.mark.parametrize("is_idle", [True, False])
async def test_decoding_does_not_delay_shutdown(is_idle, monkeypatch, run_instead):
    monkeypatch.setattr(decoder_pool, "DECODE_TIMEOUT_S", 3)
    decoders = DecoderPool()
    with decoders.open():
        if is_idle:
            await read(decoders)
            [decoder] = decoders._all
            os.kill(decoder.pid, signal.SIGSTOP)
        else:
            run_instead(SLEEPING)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused, decoders)
            await trio.testing.wait_all_tasks_blocked(0.05)
            decoders.interrupt()
            nursery.cancel_scope.cancel()
        assert not decoders._all


async def test_the_sandbox_is_logged_once_and_again_where_it_differs(
    run_instead,
):
    decoders = DecoderPool()
    with decoders.open(), capture_logs() as logged:
        for _ in range(2):
            await read(decoders)
            [decoder] = decoders._all
            os.kill(decoder.pid, signal.SIGKILL)
        run_instead(GREETING % False)
        with pytest.raises(InvalidFrameError):
            await read(decoders)
    first, second = [each for each in logged if each["event"] == "decoder.boxed"]
    assert first["log_level"] == "info"
    assert (second["log_level"], second["seccomp"]) == ("warning", False)
    assert second["landlock"] == 1


async def test_no_line_is_sent_before_a_process_reports_its_sandbox(
    monkeypatch,
):
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    sleeper = subprocess.Popen(["sleep", "60"], process_group=0)  # noqa: ASYNC220
    spawned = SpawnedProcess(sleeper, ours, FileIO(os.pidfd_open(sleeper.pid)))
    monkeypatch.setattr(decoder_pool, "spawn", lambda _: spawned)
    decoders = DecoderPool()
    with decoders.open(), theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused, decoders)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(BlockingIOError):
                theirs.recv(1)
            theirs.send(framed(SandboxReport()))
            await trio.lowlevel.wait_readable(theirs)
            assert theirs.recv(LENGTH_BYTES) == framed(ask_for(LINE))[:LENGTH_BYTES]
            theirs.close()


async def test_two_users_lines_are_read_at_once_and_one_users_one_by_one():
    decoders = DecoderPool()
    with decoders.open():
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(read, decoders)
        assert len(decoders._all) == 1
        async with trio.open_nursery() as nursery:
            for owner in (1, 2):
                nursery.start_soon(read, decoders, LINE, owner)
        assert len(decoders._all) <= 2


def test_a_pool_that_is_not_open_decodes_nothing():
    assert DecoderPool().offload_line_bytes > MAX_FRAME_BYTES
