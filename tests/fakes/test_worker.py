import signal

import pytest
import trio

from inferd.config.kinds.mock import MockSettings
from inferd.engine.supervisor.process import WorkerProcess
from inferd.ipc.worker import Drop, Load
from inferd.limits.connections import READ_BYTES
from tests.fakes.worker import FakeProcess, Workers

LOAD = Load(settings=MockSettings(name="m"), n_slots=1)


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_it_has_what_the_engine_uses_of_a_process():
    used = {"pid", "stream", "error_line", "redact_stderr", "kill", "wait"}
    assert used - {"stream"} <= public(WorkerProcess)
    assert {"redact_stderr", "kill", "wait"} <= public(FakeProcess)


async def test_what_a_worker_said_last_can_be_read_after_its_end():
    async with Workers().start() as process:
        await process.far_stream.send_all(b"last words")
        process.end(7)
        assert bytes(await process.stream.receive_some(READ_BYTES)) == b"last words"
        assert await process.stream.receive_some(READ_BYTES) == b""
        assert await process.wait() == 7


async def test_killing_ends_it_once():
    async with Workers().start() as process:
        process.kill()
        process.kill()
        assert await process.wait() == -signal.SIGKILL
        assert not process.is_alive


async def test_leaving_ends_it():
    workers = Workers()
    async with workers.start() as process:
        assert [worker.process for worker in workers.living] == [process]
    assert workers.living == []
    assert await process.wait() == -signal.SIGKILL


async def test_the_test_sees_what_the_engine_sends(autojump_clock):
    workers = Workers()
    async with workers.start() as process:
        worker = await workers.next()
        assert await worker.hear() == []
        with pytest.raises(trio.TooSlowError):
            await worker.expect(Drop)
        assert process.pid == 1000
