import socket
import stat
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import Phase, given, settings, strategies as st
from structlog.testing import capture_logs

from inferd import surfaces
from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.interface import StartFailedError
from inferd.config.settings import (
    AccessRule,
    AccessSettings,
    AdmissionSettings,
    Config,
    ConfigError,
    LimitSettings,
    ListenSettings,
)
from inferd.engine.supervisor.restart_policy import RestartDelay
from inferd.limits.engine import LOAD_SILENCE_S
from inferd.server.admin.reload import ReloadError
from inferd.server.connection.registry import FIRST_REQUEST_S, POLL_S
from inferd.server.connection.serve import Endpoint
from inferd.server.daemon import SHUTDOWN_FLUSH_S
from inferd.service.bind import ListenError
from inferd.wire.codec import decode_generate
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
from tests.fakes.client_behaviour import (
    ADMISSION,
    BEHAVIOURS,
    n_answers,
    run_client,
    scripts,
)
from tests.fakes.serving import RunningDaemon, held, make_daemon, ready, running
from tests.fakes.streams import (
    REQUESTS,
    TERMINAL,
    Frame,
    FrameClient,
    generate,
    open_pair,
    to_line,
)


async def settled():
    await trio.testing.wait_all_tasks_blocked()


def types(frames: list[Frame]) -> list[str]:
    return [frame["type"] for frame in frames]


def gate_of(server: RunningDaemon):
    gate = server.daemon._queue._admission
    return gate.active, gate.waiting


# --- the start --------------------------------------------------------------------------


async def test_a_daemon_answers(short_dir, autojump_clock):
    async with running(make_daemon(short_dir / "run", ScriptedBackend())) as server:
        async with await server.connect() as client:
            assert types(await client.ask()) == ["token", "token", "done"]


@pytest.mark.parametrize("leaf", REQUESTS)
async def test_each_socket_serves_its_own_requests(leaf, short_dir, autojump_clock):
    async with running(make_daemon(short_dir / "run", ScriptedBackend())) as server:
        async with await server.connect(leaf) as client:
            last = (await client.ask())[-1]
    assert last["type"] in TERMINAL
    assert last["type"] != "error"


async def test_only_sockets_that_a_backend_serves_exist(short_dir, autojump_clock):
    backend = ScriptedBackend(capabilities=BackendCapabilities(rerank=True))
    async with running(make_daemon(short_dir, backend)) as server:
        names = sorted(path.name for path in server.directory.glob("*.sock"))
    assert names == ["admin.sock", "infer.rerank.sock", "infer.sock"]


async def test_a_reload_that_ends_during_the_drain_opens_no_socket(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(capabilities=BackendCapabilities(rerank=True))
    async with running(make_daemon(short_dir, backend)) as server:
        async with await server.connect():  # may still send its first request
            server.daemon.stop()
            await settled()
            server.daemon._backends.append(ScriptedBackend())
            server.daemon._serve_sockets()
            names = [path.name for path in server.directory.glob("*.sock")]
            assert names == ["admin.sock"]


async def test_only_allowed_users_can_connect(short_dir, autojump_clock):
    async with running(make_daemon(short_dir / "run", ScriptedBackend())) as server:
        inference = [server.directory / leaf for leaf in REQUESTS]
        modes = [
            stat.S_IMODE(path.stat().st_mode)
            for path in (server.directory, server.admin_sock, *inference)
        ]
    assert modes == [0o700, 0o600, *[0o660] * 4]


async def test_no_inference_socket_is_there_before_every_backend_is_ready(
    short_dir, autojump_clock, nursery
):
    first, second = ScriptedBackend(name="a"), ScriptedBackend(name="b", is_ready=False)
    server = make_daemon(short_dir, first, second)
    nursery.start_soon(server.run)
    await settled()
    assert server.admin_sock.exists()
    assert not server.infer_sock.exists()
    second.become_ready()
    await ready(server)
    assert server.infer_sock.exists()
    nursery.cancel_scope.cancel()


async def test_a_backend_that_does_not_get_ready_ends_the_start(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(is_ready=False)
    backend.fail_to_start("no such model")
    server = make_daemon(short_dir, backend)
    with pytest.RaisesGroup(StartFailedError, flatten_subgroups=True):
        await server.daemon.run()
    assert [path.name for path in short_dir.iterdir()] == ["inferd.lock"]


async def test_a_second_daemon_is_refused_and_harms_nobody(short_dir, autojump_clock):
    async with running(make_daemon(short_dir, ScriptedBackend())) as server:
        with pytest.raises(ListenError, match="already holds the lock"):
            await make_daemon(short_dir, ScriptedBackend()).daemon.run()
        async with await server.connect() as client:
            assert types(await client.ask()) == ["token", "token", "done"]


async def test_a_daemon_takes_the_place_of_one_that_died(short_dir, autojump_clock):
    for leaf in ("infer.sock", "admin.sock"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(short_dir / leaf))
    async with running(make_daemon(short_dir, ScriptedBackend())) as server:
        async with await server.connect() as client:
            assert types(await client.ask()) == ["token", "token", "done"]


async def test_no_more_run_than_a_backend_got_slots(short_dir, autojump_clock):
    able = BackendCapabilities(n_slots=1)
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER), capabilities=able)
    server = make_daemon(short_dir, backend, admission=AdmissionSettings(max_active=2))
    async with (
        running(server),
        await server.connect() as one,
        await server.connect() as two,
    ):
        for client in (one, two):
            await client.send(generate())
            await settled()
        assert gate_of(server) == (1, 1)


@pytest.fixture
def manager(short_dir):
    """A service manager's end of the notification socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"{short_dir}/notify")
        sock.setblocking(False)
        yield sock


def environ_of(manager: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.getsockname(), **more}


async def test_the_manager_is_notified_when_clients_can_connect(
    short_dir, manager, autojump_clock
):
    server = make_daemon(
        short_dir / "run", ScriptedBackend(), environ=environ_of(manager)
    )
    async with running(server):
        assert server.infer_sock.exists()
        server.daemon.stop()
        await server.wait_ended()
    heard = [manager.recv(100).decode() for _ in range(3)]
    assert heard == ["STATUS=ready", "READY=1", "STOPPING=1\nSTATUS=draining"]


async def test_the_watchdog_is_fed_for_as_long_as_the_daemon_lives(
    short_dir, manager, autojump_clock
):
    environ = environ_of(manager, WATCHDOG_USEC="10000000")
    server = make_daemon(short_dir / "run", ScriptedBackend(), environ=environ)
    async with running(server):
        await trio.sleep(22)
        server.daemon.stop()
        await server.wait_ended()
        await trio.sleep(60)
    heard = [manager.recv(100) for _ in range(8)]
    assert heard.count(b"WATCHDOG=1") == 5
    with pytest.raises(BlockingIOError):
        manager.recv(100)


# --- the admin socket -------------------------------------------------------------------


async def test_an_admin_client_gets_the_status_from_start_to_end(
    short_dir, autojump_clock, nursery
):
    backend = ScriptedBackend(is_ready=False)
    server = make_daemon(short_dir, backend)
    nursery.start_soon(server.run)
    await settled()
    async with await server.admin() as listener:
        await settled()
        server.board.ready("scripted", backend.capabilities)
        backend.become_ready()
        await ready(server)
        server.daemon.stop()
        frames = await listener.rest()
    assert [frame["status"] for frame in frames] == [
        "starting",
        "capabilities",
        "ready",
        "draining",
    ]


@pytest.mark.parametrize("n_commands_before", [0, 1, 5])
async def test_a_drain_command_is_confirmed_and_published_before_the_end(
    n_commands_before, short_dir, autojump_clock
):
    async with running(make_daemon(short_dir, ScriptedBackend())) as server:
        async with await server.admin() as operator:
            await operator.frame()
            names = [*["backends"] * n_commands_before, "drain"]
            lines = [to_line({"command": name}) for name in names]
            await operator.send(b"".join(lines))
            frames = await operator.rest()
            await server.wait_ended()
    words = [frame.get("command", frame.get("status")) for frame in frames]
    assert words == [*names, "draining"]


@pytest.mark.parametrize("n_events_before", [0, 1])
async def test_an_admin_client_gets_every_event_before_the_end(
    n_events_before, short_dir, autojump_clock
):
    async with running(make_daemon(short_dir, ScriptedBackend())) as server:
        async with await server.admin() as listener:
            await listener.frame()
            for _ in range(n_events_before):
                server.board.all_ready()
            server.daemon.stop()
            words = [frame["status"] for frame in await listener.rest()]
    assert words == ["ready"] * n_events_before + ["draining"]


async def test_two_drain_commands_are_one_drain(short_dir, autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=5))
    async with running(make_daemon(short_dir, backend)) as server:
        async with await server.connect() as client, await server.admin() as operator:
            await client.send(generate("r"))
            await settled()
            for _ in range(2):
                await operator.send(to_line({"command": "drain"}))
                await settled()
            assert types(await client.rest()) == ["token", "token", "done"]
            replies = [each for each in await operator.rest() if "command" in each]
            assert [each["ok"] for each in replies] == [True, True]
            await server.wait_ended()


async def test_an_operator_sees_and_cancels_what_runs_and_waits(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    server = make_daemon(short_dir, backend)
    async with running(server), await server.admin() as operator:
        await operator.frame()
        runs, waits = await server.connect(), await server.connect("infer.embed.sock")
        for client in (runs, waits):
            await client.send(REQUESTS[client.leaf]("r"))
            await settled()
        told = await order(operator, command="requests")
        assert [
            (each["socket"], each["phase"], each.get("position"))
            for each in told["requests"]
        ] == [("infer.sock", "running", None), ("infer.embed.sock", "queued", 1)]
        assert (await order(operator, command="cancel", id="r"))["cancelled"] == 2
        assert (await runs.answer())[-1]["stop_reason"] == "cancelled"
        assert (await waits.answer())[-1]["code"] == "cancelled"
        assert not (await order(operator, command="requests"))["requests"]
        for client in (runs, waits):
            await client.aclose()


async def test_an_operator_sees_and_cancels_what_was_read_ahead(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=5), Script(token_delay_s=FOR_EVER))
    server = make_daemon(short_dir, backend)
    async with running(server), await server.admin() as operator:
        await operator.frame()
        async with await server.connect() as client:
            await client.send(generate("runs") + generate("behind"))
            await settled()
            told = await order(operator, command="requests")
            seen = [(each["id"], each["phase"]) for each in told["requests"]]
            assert seen == [("runs", "running"), ("behind", "queued")]
            assert "position" not in told["requests"][1]
            reply = await order(operator, command="cancel", id="behind")
            assert (reply["ok"], reply["cancelled"]) == (True, 1)
            assert (await client.answer())[-1]["stop_reason"] == "end"
            [end] = await client.answer()
            assert (end["id"], end["stop_reason"]) == ("behind", "cancelled")


async def order(operator: FrameClient, **command: str) -> Frame:
    await operator.send(to_line(command))
    return await operator.frame() or {}


async def test_metrics_count_present_and_past_requests(short_dir, autojump_clock):
    backend = ScriptedBackend(Script(), Script(token_delay_s=FOR_EVER))
    server = make_daemon(short_dir, backend)
    async with running(server), await server.connect() as first:
        await first.ask()
        await first.send(generate("runs"))
        await settled()
        async with await server.connect() as second:
            await second.send(generate("waits"))
            await settled()
            assert "inferd_active_requests 1.0" in server.metrics.text()
            assert "inferd_queued_requests 1.0" in server.metrics.text()
            assert "inferd_unread_bytes 0.0" in server.metrics.text()
            ended = 'inferd_requests_total{outcome="end",socket="infer.sock"} 1.0'
            assert ended in server.metrics.text()
        server.board.died("scripted", "gone", RestartDelay(1.0, breaker_is_open=False))
        assert 'inferd_worker_deaths_total{backend="scripted"} 1.0' in (
            server.metrics.text()
        )


async def test_admin_clients_can_connect_when_the_connection_limit_is_reached(
    short_dir, autojump_clock
):
    server = make_daemon(short_dir, ScriptedBackend(), max_connections=1)
    async with (
        running(server),
        await server.connect(),
        await server.admin() as listener,
    ):
        assert (await listener.frame() or {})["status"] == "ready"


async def test_an_admin_client_over_the_limit_is_closed_without_a_frame(
    short_dir, autojump_clock
):
    server = make_daemon(short_dir, ScriptedBackend(), max_admin_connections=1)
    async with running(server), await server.admin() as first:
        await first.frame()
        async with await server.admin() as second:
            assert await second.rest() == []


# --- clients ----------------------------------------------------------------------------


async def test_one_client_too_many_gets_one_frame_and_the_end(
    short_dir, autojump_clock
):
    server = make_daemon(short_dir, ScriptedBackend(), max_connections=2)
    async with running(server):
        clients = [await server.connect() for _ in range(2)]
        await settled()
        async with await server.connect() as refused:
            [frame] = await refused.rest()
        assert (frame["code"], frame["id"]) == ("queue_full", "")
        await clients.pop().aclose()
        await settled()
        async with await server.connect() as welcome:
            assert types(await welcome.ask()) == ["token", "token", "done"]
        await clients.pop().aclose()


async def test_a_client_that_does_not_read_is_dropped_as_configured(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(tokens=("x" * 10_000_000,)), Script())
    server = make_daemon(short_dir, backend, write_timeout_s=7)
    async with running(server), await server.connect() as silent:
        await silent.send(generate("silent"))
        await settled()  # else the other request may be the first that the backend sees
        async with await server.connect() as client:
            assert types(await client.ask()) == ["token", "token", "done"]
        assert trio.current_time() == 0
        await trio.sleep(7.5)
        with pytest.raises(AssertionError, match="half a frame"):
            await silent.rest()


async def test_a_bug_in_a_service_ends_its_request_alone(short_dir, autojump_clock):
    backend = ScriptedBackend(Script(failure=ZeroDivisionError()), Script())
    async with running(make_daemon(short_dir, backend)) as server:
        async with await server.connect() as client:
            with capture_logs() as log:
                error = (await client.ask("first"))[-1]
            assert (error["id"], error["code"]) == ("first", "internal")
            assert error["message"] in [line.get("bug") for line in log]
            assert (await client.ask("second"))[-1]["type"] == "done"
        await settled()
        assert gate_of(server) == (0, 0)


# --- another configuration --------------------------------------------------------------


class File:
    """A configuration that an operator changes."""

    def __init__(self, **limits: Any) -> None:
        self.config = Config(limits=LimitSettings(**limits))
        self.complaint = ""

    def read(self) -> Config:
        if self.complaint:
            raise ConfigError(self.complaint)
        return self.config


async def test_a_reload_applies_to_later_requests(short_dir, autojump_clock):
    file = File(max_connections=1)
    backend = ScriptedBackend(Script(token_delay_s=5))
    server = make_daemon(short_dir, backend, read_config=file.read)
    async with running(server), await server.admin() as operator:
        await operator.frame()
        async with await server.connect() as client:
            await client.send(generate("runs"))
            await settled()
            reply = await order(operator, command="reload")
            assert reply["applied"] == ["limits.max_connections"]
            assert reply["needs_restart"] == ["admission.max_active"]
            async with await server.connect() as refused:
                assert (await refused.frame() or {})["code"] == "queue_full"
            assert types(await client.answer()) == ["token", "token", "done"]


async def test_a_failed_reload_is_reported_and_changes_nothing(
    short_dir, autojump_clock
):
    file = File()
    file.complaint = "limits.drain_s = -1: expected `float` > 0.0"
    server = make_daemon(short_dir, ScriptedBackend(), read_config=file.read)
    async with running(server), await server.admin() as operator:
        await operator.frame()
        with capture_logs() as log:
            reply = await order(operator, command="reload")
        assert (reply["ok"], reply["error"]) == (False, file.complaint)
        assert [line["event"] for line in log] == ["admin.command", "config.refused"]
        async with await server.connect() as client:
            assert types(await client.ask()) == ["token", "token", "done"]


async def test_clients_that_lost_access_are_disconnected_at_a_reload(
    short_dir, monkeypatch, autojump_clock
):
    file = File()
    rule = AccessRule(gids=(4_000_000,))
    file.config = Config(access=AccessSettings(infer=rule))
    server = make_daemon(short_dir, ScriptedBackend(), read_config=file.read)
    async with running(server), await server.connect() as client:
        await settled()
        monkeypatch.setattr(
            "inferd.server.identity.access.is_operator", lambda _: False
        )
        await server.daemon.reload()
        assert await client.rest() == []
        async with await server.connect() as refused:
            assert (await refused.frame() or {})["code"] == "permission_denied"


@pytest.mark.parametrize("complaint", ["", "no"])
async def test_the_manager_is_notified_of_the_begin_and_end_of_a_reload(
    complaint, short_dir, manager, autojump_clock
):
    file = File()
    file.complaint = complaint
    server = make_daemon(
        short_dir / "run",
        ScriptedBackend(),
        environ=environ_of(manager),
        read_config=file.read,
    )
    async with running(server):
        with suppress(ReloadError):
            await server.daemon.reload()
    heard = [manager.recv(100).decode().partition("\n")[0] for _ in range(5)]
    extension = f"EXTEND_TIMEOUT_USEC={int(LOAD_SILENCE_S * 1e6)}"
    told = ["STATUS=ready", "READY=1", "RELOADING=1", extension, "READY=1"]
    assert heard == told


async def test_a_reload_that_is_ordered_during_the_start_happens_once_the_daemon_serves(
    short_dir, manager, autojump_clock, nursery
):
    backend = ScriptedBackend(is_ready=False)
    environ, file = environ_of(manager), File(max_connections=1)
    server = make_daemon(
        short_dir / "run", backend, environ=environ, read_config=file.read
    )
    nursery.start_soon(server.run)
    await settled()
    server.daemon.order_reload()
    nursery.start_soon(server.daemon.reload)
    await settled()
    with pytest.raises(BlockingIOError):
        manager.recv(100)
    assert server.daemon._deps.limits.max_connections > 1
    backend.become_ready()
    await ready(server)
    await server.daemon.reload()
    assert server.daemon._deps.limits.max_connections == 1
    nursery.cancel_scope.cancel()


async def test_the_admin_socket_admits_configured_users(short_dir, autojump_clock):
    access = AccessSettings(admin=AccessRule(uids=(5,)))
    async with running(
        make_daemon(short_dir, ScriptedBackend(), access=access)
    ) as server:
        assert stat.S_IMODE(server.admin_sock.stat().st_mode) == 0o660


async def test_a_daemon_without_enough_descriptors_does_not_start(
    short_dir, monkeypatch
):
    monkeypatch.setattr("inferd.server.admin.running_config.fd_limit", lambda: 30)
    with pytest.raises(ConfigError, match="open files = 30"):
        await make_daemon(short_dir, ScriptedBackend()).daemon.run()


# --- the end ----------------------------------------------------------------------------


async def test_stopping_an_idle_daemon_leaves_its_lock_file_alone(
    short_dir, autojump_clock
):
    backend = ScriptedBackend()
    async with running(make_daemon(short_dir, backend)) as server:
        server.daemon.stop()
        await server.wait_ended()
        assert [path.name for path in short_dir.iterdir()] == ["inferd.lock"]
        assert not backend.is_alive
        assert trio.current_time() == POLL_S


async def test_draining_goes_in_order(short_dir, autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=5, tokens=("a",)))
    server = make_daemon(short_dir, backend, drain_s=15)
    events: list[tuple[float, str]] = []

    async def note(name: str, client: FrameClient):
        async with client:
            while (frame := await client.frame()) is not None:
                what = frame.get("status") or frame["type"]
                events.append((trio.current_time(), f"{name} {what}"))
        events.append((trio.current_time(), f"{name} EOF"))

    async with running(server), trio.open_nursery() as nursery:
        clients = [await server.connect() for _ in range(3)]
        for client in clients[:2]:
            await client.send(generate())
            await settled()
        for name, client in zip(("runs", "waits", "idle"), clients, strict=True):
            nursery.start_soon(note, name, client)
        nursery.start_soon(note, "listener", await server.admin())
        await settled()
        server.daemon.stop()
        await settled()
        assert not server.infer_sock.exists()
        assert server.admin_sock.exists()
        await server.wait_ended()
        await settled()
        nursery.cancel_scope.cancel()
    assert events[0] == (0, "listener ready")
    assert events[1:3] == [(0, "listener draining"), (FIRST_REQUEST_S, "idle EOF")]
    assert events[3:6] == [(5, "runs token"), (5, "runs done"), (5, "runs EOF")]
    assert events[6:8] == [(10, "waits token"), (10, "waits done")]
    assert set(events[8:]) == {(10, "waits EOF"), (10, "listener EOF")}


async def test_a_connection_that_waits_for_its_turn_is_answered_in_a_drain(
    short_dir, autojump_clock, monkeypatch
):
    server = make_daemon(short_dir, ScriptedBackend(), drain_s=15)
    async with running(server):
        waiting = []
        monkeypatch.setattr(
            server.daemon._deps.loop,
            "call_later",
            lambda _, start: waiting.append(start),
        )
        clients = [await server.connect() for _ in range(4)]
        for client in clients:
            await client.send(generate())
        await settled()
        assert len(waiting) == len(clients)
        server.daemon.stop()
        for start in waiting:
            await trio.sleep(FIRST_REQUEST_S)
            start()
        for client in clients:
            async with client:
                assert types(await client.rest())[-1] == "done"


async def test_a_request_that_waits_for_its_turn_is_answered_in_a_drain(
    short_dir, autojump_clock, monkeypatch
):
    server = make_daemon(short_dir, ScriptedBackend(), drain_s=15)
    async with running(server):

        async def late_turn() -> None:
            await trio.sleep(FIRST_REQUEST_S / 5)

        loop = server.daemon._deps.loop
        monkeypatch.setattr(loop, "turn", late_turn)
        async with await server.connect() as client:
            await client.send(generate())
            await settled()
            server.daemon.stop()
            assert types(await client.rest())[-1] == "done"


async def test_unfinished_requests_get_an_error_after_the_drain_time(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with running(make_daemon(short_dir, backend, drain_s=15)) as server:
        clients = [await server.connect() for _ in range(3)]
        for n, client in enumerate(clients):
            await client.send(generate(f"r{n}"))
            await settled()
        server.daemon.stop()
        for n, client in enumerate(clients):
            [error] = await client.rest()
            assert (error["id"], error["code"]) == (f"r{n}", "backend_unavailable")
            assert trio.current_time() == 15
            await client.aclose()
        await server.wait_ended()
        assert backend.is_idle


async def test_a_request_behind_a_client_that_does_not_read_gets_its_error_in_time(
    short_dir, autojump_clock
):
    stalling = Script(tokens=("x" * 10_000_000, "y"), token_delay_s=10)
    backend = ScriptedBackend(stalling)
    async with running(make_daemon(short_dir, backend, drain_s=15)) as server:
        async with await server.connect() as silent, await server.connect() as client:
            for each in (silent, client):
                await each.send(generate("r"))
                await settled()
            server.daemon.stop()
            [error] = await client.rest()
            assert error["code"] == "backend_unavailable"
            assert trio.current_time() == 15
        await server.wait_ended()


async def test_a_job_that_hangs_in_prepare_does_not_outlast_the_drain(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(prepare_s=FOR_EVER))
    async with running(make_daemon(short_dir, backend, drain_s=15)) as server:
        async with await server.connect() as client:
            await client.send(generate("r"))
            await settled()
            server.daemon.stop()
            [error] = await client.rest()
        assert error["code"] == "backend_unavailable"
        await server.wait_ended()
    assert trio.current_time() == 15


@pytest.mark.parametrize(
    ("token_delay_s", "expected"), [(2, ["error"]), (1, ["token", "done"])]
)
async def test_a_client_that_reads_at_last_gets_its_last_frame(
    token_delay_s, expected, short_dir, autojump_clock
):
    script = Script(tokens=("x" * 1_000_000, "y"), token_delay_s=token_delay_s)
    server = make_daemon(short_dir, ScriptedBackend(script), drain_s=3)
    async with running(server), await server.connect() as client:
        await client.send(generate("r"))
        await settled()
        server.daemon.stop()
        await trio.sleep(3 + SHUTDOWN_FLUSH_S / 2)
        frames = await client.rest()
    assert types(frames) == ["token", *expected]


async def test_a_client_that_does_not_read_does_not_outlast_the_drain(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(tokens=("x" * 10_000_000,)))
    async with running(make_daemon(short_dir, backend, drain_s=15)) as server:
        async with await server.connect() as client:
            await client.send(generate("r"))
            await settled()
            server.daemon.stop()
            await server.wait_ended()
    assert trio.current_time() == 15 + SHUTDOWN_FLUSH_S


@pytest.mark.parametrize("leaf", REQUESTS)
async def test_every_request_sent_ahead_is_refused_while_draining(
    leaf, short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=1))
    async with running(make_daemon(short_dir, backend)) as server:
        async with await server.connect(leaf) as client:
            await client.send(b"".join(REQUESTS[leaf](f"r{n}") for n in range(3)))
            await settled()
            server.daemon.stop()
            *_, end, first, second = await client.rest()
    assert (end["id"], end.get("code")) == ("r0", None)
    assert [each["id"] for each in (first, second)] == ["r1", "r2"]
    for refusal in (first, second):
        assert refusal["code"] == "backend_unavailable"
        assert "draining" in refusal["message"]
    assert backend.counts.asked == 1


async def test_what_was_sent_ahead_of_a_request_that_runs_out_of_time_is_refused(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with running(make_daemon(short_dir, backend, drain_s=15)) as server:
        async with await server.connect() as client:
            await client.send(generate("r0") + generate("r1") + b"no JSON\n")
            await settled()
            server.daemon.stop()
            frames = await client.rest()
    assert [frame["id"] for frame in frames] == ["r0", "r1", ""]
    assert [frame["code"] for frame in frames] == [
        *("backend_unavailable", "backend_unavailable"),
        "invalid_request",
    ]
    assert trio.current_time() == 15


async def test_no_client_can_connect_while_draining(short_dir, autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=1))
    async with running(make_daemon(short_dir, backend)) as server:
        async with await server.connect() as client:
            await client.send(generate("r"))
            await settled()
            server.daemon.stop()
            await settled()
            with pytest.raises(FileNotFoundError):
                await server.connect()
            assert types(await client.rest()) == ["token", "token", "done"]


async def test_a_client_accepted_as_draining_begins_is_disconnected(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=5))
    async with running(make_daemon(short_dir, backend, drain_s=15)) as server:
        async with await server.connect() as client, open_pair() as (late, theirs):
            await client.send(generate("r"))
            await settled()
            server.daemon.stop()
            await settled()
            unused: Any = trio.Event()
            endpoint = Endpoint(surfaces.INFER, decode_generate, unused, unused)
            with trio.fail_after(FIRST_REQUEST_S + 0.1):
                await server.daemon._serve_client(endpoint, late)
            await late.aclose()
            assert await FrameClient(theirs).rest() == []


@pytest.mark.parametrize("leaf", REQUESTS)
async def test_a_client_accepted_before_draining_may_send_one_request(
    leaf, short_dir, autojump_clock
):
    async with running(make_daemon(short_dir, ScriptedBackend())) as server:
        async with await server.connect(leaf) as client:
            await settled()
            server.daemon.stop()
            await trio.sleep(FIRST_REQUEST_S / 5)
            [*_, end] = await client.ask()
            assert (end["type"] in TERMINAL, end.get("code")) == (True, None)
            assert await client.frame() is None


@pytest.mark.parametrize("drain_s", [FIRST_REQUEST_S / 5, FIRST_REQUEST_S * 5])
async def test_a_client_that_sends_nothing_delays_a_drain_no_longer_than_first_request_s(
    drain_s, short_dir, autojump_clock
):
    daemon = make_daemon(short_dir, ScriptedBackend(), drain_s=drain_s)
    async with running(daemon) as server, await server.connect() as client:
        await settled()
        server.daemon.stop()
        assert await client.frame() is None
        assert trio.current_time() == min(drain_s, FIRST_REQUEST_S)


async def test_a_client_that_has_sent_a_request_before_does_not_delay_a_drain(
    short_dir, autojump_clock
):
    async with running(make_daemon(short_dir, ScriptedBackend())) as server:
        async with await server.connect() as client:
            await client.ask()
            server.daemon.stop()
            assert await client.frame() is None
            assert trio.current_time() < FIRST_REQUEST_S / 5


# --- sockets that are held by somebody else -----------------------------------------------


async def test_no_client_of_an_inherited_socket_is_accepted_before_the_daemon_is_ready(
    short_dir, autojump_clock, nursery
):
    backend = ScriptedBackend(is_ready=False)
    with held(short_dir, "infer.sock") as hand_over:
        server = make_daemon(short_dir, backend, inherited=hand_over())
        nursery.start_soon(server.run)
        async with await server.connect() as client:
            await client.send(generate("r") + b"no JSON\n")
            await trio.sleep(1000)
            assert not server.daemon._connections
            backend.become_ready()
            frames = await client.rest()
        assert types(frames) == ["token", "token", "done", "error"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("leaves", [["infer.sock"], ["admin.sock", *REQUESTS]])
async def test_a_client_that_connects_during_a_drain_is_served_by_the_next_daemon(
    leaves, short_dir, autojump_clock
):
    with held(short_dir, *leaves) as hand_over:
        first = make_daemon(short_dir, ScriptedBackend(), inherited=hand_over())
        async with running(first) as server:
            server.daemon.stop()
            client = await server.connect()
            await client.send(generate("r"))
            await server.wait_ended()
        async with client:
            assert sorted(path.name for path in short_dir.glob("*.sock")) == sorted(
                leaves
            )
            second = make_daemon(short_dir, ScriptedBackend(), inherited=hand_over())
            async with running(second):
                assert types(await client.answer()) == ["token", "token", "done"]


@pytest.mark.parametrize("leaf", ["infer.v2.sock", "infer.embed.sock"])
async def test_every_client_of_an_unserved_inherited_socket_gets_an_error(
    leaf, short_dir, autojump_clock
):
    backend = ScriptedBackend(capabilities=BackendCapabilities())
    with held(short_dir, leaf, "infer.sock") as hand_over:
        server = make_daemon(short_dir, backend, inherited=hand_over())
        async with running(server):
            for n in range(3):
                async with await server.connect(leaf) as client:
                    if n:
                        with suppress(trio.BrokenResourceError):  # gone already
                            await client.send(REQUESTS[leaf]())
                    [frame] = await client.rest()
                assert (frame["id"], frame["code"]) == ("", "backend_unavailable")
                assert frame["message"] == f"no backend serves {leaf}"


async def test_a_disabled_endpoint_is_an_unserved_socket(short_dir, autojump_clock):
    with held(short_dir, "infer.v2.sock") as hand_over:
        daemon = make_daemon(
            short_dir,
            ScriptedBackend(),
            listen=ListenSettings(v2=False),
            inherited=hand_over(),
        )
        async with running(daemon) as server:
            async with await server.connect("infer.v2.sock") as client:
                assert types(await client.rest()) == ["error"]


@pytest.mark.parametrize("n_more", [1, 2])
async def test_a_second_stop_ends_at_once_with_error_frames(
    n_more, short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with running(make_daemon(short_dir, backend)) as server:
        clients = [await server.connect() for _ in range(2)]
        for client in clients:
            await client.send(generate("r"))
            await settled()
        server.daemon.stop()
        await trio.sleep(2 * FIRST_REQUEST_S)
        for _ in range(n_more):
            server.daemon.stop()
        for client in clients:
            [error] = await client.rest()
            assert (error["id"], error["code"]) == ("r", "backend_unavailable")
            await client.aclose()
        await server.wait_ended()
        assert trio.current_time() == 2 * FIRST_REQUEST_S
        assert [path.name for path in short_dir.iterdir()] == ["inferd.lock"]


async def test_a_second_stop_waits_for_no_first_request(short_dir, autojump_clock):
    async with running(make_daemon(short_dir, ScriptedBackend())) as server:
        async with await server.connect() as client:
            await settled()
            server.daemon.stop()
            await settled()
            server.daemon.stop()
            assert await client.rest() == []
            await server.wait_ended()
        assert trio.current_time() == 0


async def test_a_client_that_does_not_read_holds_up_an_end_at_once_for_a_moment(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(tokens=("x" * 10_000_000,)))
    async with running(make_daemon(short_dir, backend)) as server:
        async with await server.connect() as client:
            await client.send(generate("r"))
            await settled()
            for _ in range(3):
                server.daemon.stop()
                await settled()
            await server.wait_ended()
    assert trio.current_time() == SHUTDOWN_FLUSH_S


async def test_a_stop_before_ready_ends_at_once(short_dir, autojump_clock, nursery):
    server = make_daemon(short_dir, ScriptedBackend(is_ready=False))
    nursery.start_soon(server.run)
    await settled()
    server.daemon.stop()
    await server.wait_ended()
    assert [path.name for path in short_dir.iterdir()] == ["inferd.lock"]


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=150, phases=set(Phase) - {Phase.explain})
@given(
    scripts=scripts(0, 0, 1, FOR_EVER),
    behaviours=st.lists(BEHAVIOURS, min_size=1, max_size=6),
    admission=ADMISSION,
    stops_s=st.sampled_from([0.25, 0.75, 1, 2.5, 5, 100]),
)
def test_every_request_that_was_read_is_answered_once_when_the_daemon_stops(
    scripts, behaviours, admission, stops_s
):
    backend = ScriptedBackend(*scripts)
    seen: list[list[Frame]] = [[] for _ in behaviours]

    async def main(directory: Path):
        server = make_daemon(directory, backend, admission=admission, drain_s=5)
        async with running(server), trio.open_nursery() as nursery:
            for behaviour, frames in zip(behaviours, seen, strict=True):
                client = await server.connect(behaviour.leaf)
                nursery.start_soon(run_client, client, behaviour, frames)
            await trio.sleep(stops_s)
            server.daemon.stop()
            await server.wait_ended()
            assert trio.current_time() <= stops_s + 5 + SHUTDOWN_FLUSH_S
            await settled()
            nursery.cancel_scope.cancel()
        assert gate_of(server) == (0, 0)

    with TemporaryDirectory(prefix="inferd-") as directory, capture_logs():
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(main, Path(directory), clock=clock)
    for behaviour, frames in zip(behaviours, seen, strict=True):
        if behaviour.stays:
            assert n_answers(frames) == behaviour.n_requests
    assert backend.is_idle
