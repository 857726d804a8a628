import errno
import os
import socket
from pathlib import Path

import pytest
import trio

from inferd.config.kinds.mock import MockSettings
from inferd.config.settings import LimitSettings
from inferd.engine.session import WorkerSession
from inferd.engine.supervisor.process import start_worker
from inferd.engine.supervisor.spawn import (
    SpawnedProcess,
    WorkerStart,
    kill_and_reap,
    prespawn_workers,
    spawn,
)
from inferd.limits.engine import HEARTBEAT_S
from tests.daemon.harness import eventually
from tests.fakes.memory_coordinator import grant_all
from tests.fakes.starting import MOCK_PROGRAM, start_of

pytestmark = pytest.mark.slow


def starts(*names: str) -> list[WorkerStart]:
    return [start_of(MockSettings(name=name), n_slots=2) for name in names]


def is_there(spawned: SpawnedProcess) -> bool:
    return Path(f"/proc/{spawned.popen.pid}").exists()


def is_closed(sock: socket.socket) -> bool:
    return sock.fileno() == -1


@pytest.mark.parametrize(("silence_s", "heartbeat_s"), [(60, HEARTBEAT_S), (4, 1)])
def test_a_worker_sends_heartbeats_often_enough(silence_s, heartbeat_s):
    limits = LimitSettings(worker_silence_s=silence_s)
    program, load, *_ = start_of(MockSettings(name="m"), n_slots=2, limits=limits)
    assert program == MOCK_PROGRAM
    assert load.heartbeat_s == heartbeat_s
    assert (load.settings.name, load.n_slots, load.crashed_variants) == ("m", 2, ())


def test_a_process_that_was_started_can_be_ended_twice():
    spawned = spawn(MOCK_PROGRAM, keeps_stderr=True)
    assert is_there(spawned)
    for _ in range(2):
        kill_and_reap(spawned)
        assert not is_there(spawned)
        assert is_closed(spawned.sock)
        assert spawned.pidfd.closed


def test_a_process_without_a_pidfd_is_ended(monkeypatch):
    started: list[int] = []

    def out_of_descriptors(pid: int) -> int:
        started.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", out_of_descriptors)
    with pytest.raises(OSError, match="files"):
        spawn(MOCK_PROGRAM, keeps_stderr=True)
    [pid] = started
    assert not Path(f"/proc/{pid}").exists()


def test_a_terminals_signals_do_not_reach_a_worker():
    spawned = spawn(MOCK_PROGRAM, keeps_stderr=True)
    assert os.getpgid(spawned.popen.pid) == spawned.popen.pid
    kill_and_reap(spawned)


def test_a_worker_has_no_threads_that_wait_for_linear_algebra(monkeypatch):
    """They would spin while it loads, one for each core."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "8")
    spawned = spawn(MOCK_PROGRAM, keeps_stderr=True)
    environ = Path(f"/proc/{spawned.popen.pid}/environ")
    assert eventually(lambda: environ.read_bytes() != b"")  # none while it is replaced
    environment = environ.read_bytes()
    kill_and_reap(spawned)
    assert b"OPENBLAS_NUM_THREADS=1" in environment.split(b"\0")


async def test_prespawned_workers_load_without_another_message():
    with prespawn_workers(starts("a", "b")) as early:
        assert [*early] == ["a", "b"]
        for program, load, *_ in starts("a", "b"):
            async with start_worker(program, early[load.settings.name]) as process:
                with trio.fail_after(90):
                    loaded = await WorkerSession(process).load(
                        load, lambda _: None, grant_all, silence_s=20
                    )
                assert loaded.library.startswith("mock")
            assert not is_there(early[load.settings.name])


def test_unused_prespawned_workers_are_killed_and_reaped():
    with prespawn_workers(starts("a", "b")) as early:
        assert all(is_there(each) for each in early.values())
    assert not any(is_there(each) for each in early.values())
    assert all(is_closed(each.sock) for each in early.values())


def test_a_worker_that_cannot_be_started_is_skipped(monkeypatch):
    def refuse(*_: object, **__: object) -> SpawnedProcess:
        raise BlockingIOError

    monkeypatch.setattr("inferd.engine.supervisor.spawn.spawn", refuse)
    with prespawn_workers(starts("a")) as early:
        assert early == {}
