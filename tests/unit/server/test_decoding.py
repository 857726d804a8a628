import os
import signal
import sys

import pytest
import trio
import trio.testing

from inferd.decoder.messages import Ask
from inferd.errors import InvalidFrameError
from inferd.limits import MAX_FRAME_BYTES
from inferd.server import decoding
from inferd.server.decoding import Decoders
from inferd.server.limits import DECODED_APART_BYTES

LINE = b'{"id":"r","messages":[{"role":"user","content":"hello"}]}'

pytestmark = pytest.mark.slow


def ask_for(line: bytes, owner: int = 1) -> Ask:
    return Ask(kind="text", n_bytes=len(line), seed=1, owner=owner)


async def read(decoders: Decoders, line: bytes = LINE, owner: int = 1):
    return await decoders.read(ask_for(line, owner), [line], user=owner)


async def test_one_process_reads_line_after_line_and_ends_with_its_owner():
    decoders = Decoders()
    with decoders.open():
        assert decoders.apart_bytes == DECODED_APART_BYTES
        for _ in range(3):
            decoded = await read(decoders)
            assert decoded.answer.request is not None
            assert [len(each) for each in decoded.sections] == decoded.answer.sections
        [decoder] = decoders._all
    with pytest.raises(ProcessLookupError):
        os.kill(decoder.pid, 0)


async def test_one_that_died_between_two_lines_is_replaced():
    decoders = Decoders()
    with decoders.open():
        await read(decoders)
        [decoder] = decoders._all
        os.kill(decoder.pid, signal.SIGKILL)
        assert (await read(decoders)).answer.request is not None
        assert decoder not in decoders._all


@pytest.mark.parametrize("code", ["raise SystemExit", "print(1)"])
async def test_one_that_dies_over_a_line_loses_that_alone(code, monkeypatch):
    decoders = Decoders()
    with decoders.open():
        with monkeypatch.context() as patch:
            patch.setattr(decoding, "COMMAND", (sys.executable, "-c", code))
            with pytest.raises(InvalidFrameError, match="too much time or memory"):
                await read(decoders)
        assert not decoders._all
        assert (await read(decoders)).answer.request is not None


async def test_one_that_takes_too_long_is_killed(monkeypatch):
    monkeypatch.setattr(decoding, "DECODE_S", 0.01)
    code = "import time; time.sleep(60)"
    monkeypatch.setattr(decoding, "COMMAND", (sys.executable, "-c", code))
    decoders = Decoders()
    with decoders.open():
        with pytest.raises(InvalidFrameError, match="too much time"):
            await read(decoders)
        assert not decoders._all


@pytest.mark.parametrize("is_idle", [True, False])
async def test_what_is_read_as_the_daemon_ends_holds_nothing_up(is_idle, monkeypatch):
    async def refused() -> None:
        with pytest.raises(InvalidFrameError, match="or memory|going down"):
            await read(decoders)

    monkeypatch.setattr(decoding, "DECODE_S", 3)
    code = "import time; time.sleep(60)"
    decoders = Decoders()
    with decoders.open():
        if is_idle:
            await read(decoders)
            [decoder] = decoders._all
            os.kill(decoder.pid, signal.SIGSTOP)
        else:
            monkeypatch.setattr(decoding, "COMMAND", (sys.executable, "-c", code))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused)
            await trio.testing.wait_all_tasks_blocked(0.05)
            decoders.interrupt()
            nursery.cancel_scope.cancel()
        assert not decoders._all


async def test_two_users_lines_are_read_at_once_and_one_users_one_by_one():
    decoders = Decoders()
    with decoders.open():
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(read, decoders)
        assert len(decoders._all) == 1
        async with trio.open_nursery() as nursery:
            for owner in (1, 2):
                nursery.start_soon(read, decoders, LINE, owner)
        assert len(decoders._all) <= 2


def test_those_that_are_not_open_read_nothing():
    assert Decoders().apart_bytes > MAX_FRAME_BYTES
