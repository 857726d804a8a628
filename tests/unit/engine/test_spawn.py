import errno
import os
import socket
from pathlib import Path

import pytest
import trio

from inferd.config import LimitSettings, MockSettings
from inferd.engine.process import start_worker
from inferd.engine.session import Session
from inferd.engine.spawn import Spawned, end, first_load, spawn, spawned_early
from inferd.ipc import Load
from inferd.limits import HEARTBEAT_S
from tests.fakes.ledger import allot_all

pytestmark = pytest.mark.slow


def loads(*names: str) -> list[Load]:
    limits = LimitSettings()
    return [
        first_load(MockSettings(name=name), n_slots=2, limits=limits) for name in names
    ]


def is_there(spawned: Spawned) -> bool:
    return Path(f"/proc/{spawned.popen.pid}").exists()


def is_closed(sock: socket.socket) -> bool:
    return sock.fileno() == -1


@pytest.mark.parametrize(("silence_s", "heartbeat_s"), [(60, HEARTBEAT_S), (4, 1)])
def test_a_worker_shows_life_often_enough(silence_s, heartbeat_s):
    limits = LimitSettings(worker_silence_s=silence_s)
    load = first_load(MockSettings(name="m"), n_slots=2, limits=limits)
    assert load.heartbeat_s == heartbeat_s
    assert (load.settings.name, load.n_slots, load.crashed) == ("m", 2, ())


def test_a_process_that_was_started_can_be_ended_twice():
    spawned = spawn()
    assert is_there(spawned)
    for _ in range(2):
        end(spawned)
        assert not is_there(spawned)
        assert is_closed(spawned.sock)
        assert spawned.pidfd.closed


def test_where_a_process_cannot_be_watched_there_is_none(monkeypatch):
    started: list[int] = []

    def out_of_descriptors(pid: int) -> int:
        started.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", out_of_descriptors)
    with pytest.raises(OSError, match="files"):
        spawn()
    [pid] = started
    assert not Path(f"/proc/{pid}").exists()


def test_a_terminals_keys_are_not_a_workers_to_hear():
    spawned = spawn()
    assert os.getpgid(spawned.popen.pid) == spawned.popen.pid
    end(spawned)


async def test_early_workers_load_without_being_told_again():
    with spawned_early(loads("a", "b")) as early:
        assert [*early] == ["a", "b"]
        for load in loads("a", "b"):
            async with start_worker(early[load.settings.name]) as process:
                with trio.fail_after(20):
                    loaded = await Session(process).load(
                        load, lambda _: None, allot_all, silence_s=20
                    )
                assert loaded.library.startswith("mock")
            assert not is_there(early[load.settings.name])


def test_those_that_nobody_takes_are_killed_and_reaped():
    with spawned_early(loads("a", "b")) as early:
        assert all(is_there(each) for each in early.values())
    assert not any(is_there(each) for each in early.values())
    assert all(is_closed(each.sock) for each in early.values())


def test_where_no_process_can_be_had_none_is_early(monkeypatch):
    def refuse() -> Spawned:
        raise BlockingIOError

    monkeypatch.setattr("inferd.engine.spawn.spawn", refuse)
    with spawned_early(loads("a")) as early:
        assert early == {}
