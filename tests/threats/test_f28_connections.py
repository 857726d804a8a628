import itertools
import resource
import signal
from pathlib import Path

import pytest
import trio
import trio.testing

from inferd.config.settings import LimitSettings
from inferd.limits.connections import (
    IDLE_S,
    LIMITED_LINE_BYTES,
    LINE_TIMEOUT_S,
    MAX_LARGE_LINES,
)
from inferd.server.connection.limit import ConnectionLimit, n_reserved
from tests.daemon.harness import DaemonProcess, Listener, MakeDaemon, eventually, mock
from tests.fakes.backend import ScriptedBackend
from tests.fakes.serving import LocalServer
from tests.fakes.streams import generate

FEW = 64
"""Descriptors that a daemon gets."""
CROWD = 200


def start_with_few_descriptors(make_daemon: MakeDaemon) -> DaemonProcess:
    daemon = make_daemon({"backend": [mock()]})
    daemon.spawn()
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (FEW, FEW))
    assert eventually(daemon.admin_sock.exists)
    with daemon.admin() as listener:
        listener.until("ready")
    return daemon


def n_connections(operator: Listener) -> int:
    text = operator.order("metrics")["text"]
    return int(float(text.partition("\ninferd_connections ")[2].split()[0]))


@pytest.mark.slow
def test_with_few_descriptors_many_clients_are_told_and_admin_answers(
    make_daemon: MakeDaemon,
):
    daemon = start_with_few_descriptors(make_daemon)
    crowd = [daemon.connect() for _ in range(CROWD)]
    [*_, last] = crowd[-1].read_to_eof()
    assert last["code"] == "queue_full"
    operator = daemon.admin()
    places = n_connections(operator)
    refusals = [connection.read_to_eof() for connection in crowd[places:-1]]
    assert {frame["code"] for [frame] in refusals} == {"queue_full"}
    assert places + len(refusals) + 1 == CROWD
    daemon.kill_worker()
    operator.until("restarting")
    operator.until("ready")
    assert len(daemon.logged(msg="client.refused")) <= 2
    assert len(daemon.logged(msg="connections.lowered")) == 1
    for connection in crowd:
        connection.close()
    assert eventually(lambda: daemon.ask()[-1]["type"] == "done")


def lowest_free(daemon: DaemonProcess) -> int:
    """Give the number that the daemon's next descriptor would have."""
    taken = {int(each.name) for each in Path(f"/proc/{daemon.pid}/fd").iterdir()}
    return next(n for n in itertools.count() if n not in taken)


@pytest.mark.slow
def test_where_descriptors_run_out_all_the_same_admin_answers(make_daemon: MakeDaemon):
    daemon = make_daemon({"backend": [mock()]}).start()
    crowd = [daemon.connect() for _ in range(20)]
    crowd[-1].ask({"id": "r", "messages": []})
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (lowest_free(daemon), FEW))
    for _ in range(5):
        with daemon.connect() as refused:
            [frame] = refused.read_to_eof()
            assert (frame["id"], frame["code"]) == ("", "queue_full")
        with daemon.admin() as operator:
            assert operator.order("backends")["ok"]
    assert len(daemon.logged(msg="descriptors.short")) <= 2
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (FEW, FEW))
    assert daemon.ask()[-1]["type"] == "done"
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait() == 0


def test_a_user_with_all_places_keeps_no_other_out():
    room = ConnectionLimit(LimitSettings().max_connections)
    while room.acquire(70_001):
        pass
    assert room.n_held == LimitSettings().max_connections == 1024
    assert all(room.acquire(70_002) for _ in range(n_reserved(1024)))


async def test_lines_that_never_end_give_their_places_back(autojump_clock):
    server = LocalServer(ScriptedBackend())
    async with server.opened():
        clients = [server.connect() for _ in range(20)]
        while trio.current_time() < LINE_TIMEOUT_S:
            for client in clients:
                await client.send(b"x")
            await trio.sleep(1)
        await trio.testing.wait_all_tasks_blocked()
        assert server.n_served == 0
        for client in clients:
            assert [each["id"] for each in await client.rest()] == [""]
            await client.aclose()


async def test_those_who_only_wait_make_room_when_it_is_short(autojump_clock):
    server = LocalServer(ScriptedBackend(), max_connections=20)
    async with server.opened():
        clients = [server.connect() for _ in range(20)]
        await trio.sleep(2 * IDLE_S)
        assert server.n_served < 20
        async with server.connect() as client:
            assert (await client.ask())[-1]["type"] == "done"
        for client in clients:
            await client.aclose()


async def test_of_many_who_send_a_huge_line_at_once_few_are_read(autojump_clock):
    server = LocalServer(ScriptedBackend())
    bomb = generate("bomb", "x" * 3_000_000)
    async with server.opened():
        clients = [server.connect() for _ in range(12)]
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.send, bomb[:-1])
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        begun = [each._reader._lines.pending_bytes for each in server.connections]
        n_large = sum(n_bytes > 2 * LIMITED_LINE_BYTES for n_bytes in begun)
        assert 0 < n_large < MAX_LARGE_LINES
        for client in clients:
            await client.aclose()


def test_the_times_and_numbers_are_settings_with_these_defaults():
    limits = LimitSettings()
    assert (limits.idle_s, limits.line_timeout_s) == (IDLE_S, LINE_TIMEOUT_S)
    assert limits.max_large_lines == MAX_LARGE_LINES
