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

from inferd.backend import StartFailedError
from inferd.capabilities import BackendCapabilities
from inferd.config import (
    AccessRule,
    AccessSettings,
    AdmissionSettings,
    Config,
    ConfigError,
    LimitSettings,
    Listen,
)
from inferd.engine.restart import Pause
from inferd.server.connection import Surface
from inferd.server.guests import HEARING_S, LAST_CALL_S
from inferd.server.listen import ListenError
from inferd.server.run import LAST_WORDS_S
from inferd.wire.codec import decode_generate
from tests.fakes.backend import FOR_EVER, Script, ScriptedBackend
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
from tests.fakes.visits import ADMISSION, BEHAVIOURS, n_answers, scripts, visit


async def settled():
    await trio.testing.wait_all_tasks_blocked()


def types(frames: list[Frame]) -> list[str]:
    return [frame["type"] for frame in frames]


def gate_of(house: RunningDaemon):
    gate = house.daemon._turns._gate
    return gate.active, gate.waiting


# --- the start --------------------------------------------------------------------------


async def test_a_daemon_answers(short_dir, autojump_clock):
    async with running(make_daemon(short_dir / "run", ScriptedBackend())) as house:
        async with await house.connect() as client:
            assert types(await client.ask()) == ["token", "token", "done"]


@pytest.mark.parametrize("leaf", REQUESTS)
async def test_each_socket_serves_its_own_requests(leaf, short_dir, autojump_clock):
    async with running(make_daemon(short_dir / "run", ScriptedBackend())) as house:
        async with await house.connect(leaf) as client:
            last = (await client.ask())[-1]
    assert last["type"] in TERMINAL
    assert last["type"] != "error"


async def test_only_the_sockets_that_somebody_serves_are_there(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(capabilities=BackendCapabilities(rerank=True))
    async with running(make_daemon(short_dir, backend)) as house:
        names = sorted(path.name for path in house.directory.glob("*.sock"))
    assert names == ["admin.sock", "infer.rerank.sock", "infer.sock"]


async def test_only_those_who_may_get_in(short_dir, autojump_clock):
    async with running(make_daemon(short_dir / "run", ScriptedBackend())) as house:
        inference = [house.directory / leaf for leaf in REQUESTS]
        modes = [
            stat.S_IMODE(path.stat().st_mode)
            for path in (house.directory, house.admin_sock, *inference)
        ]
    assert modes == [0o700, 0o600, *[0o660] * 4]


async def test_no_inference_socket_is_there_before_every_backend_is_ready(
    short_dir, autojump_clock, nursery
):
    first, second = ScriptedBackend(name="a"), ScriptedBackend(name="b", is_ready=False)
    house = make_daemon(short_dir, first, second)
    nursery.start_soon(house.run)
    await settled()
    assert house.admin_sock.exists()
    assert not house.infer_sock.exists()
    second.become_ready()
    await ready(house)
    assert house.infer_sock.exists()
    nursery.cancel_scope.cancel()


async def test_a_backend_that_does_not_get_ready_ends_the_start(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(is_ready=False)
    backend.fail_to_start("no such model")
    house = make_daemon(short_dir, backend)
    with pytest.RaisesGroup(StartFailedError, flatten_subgroups=True):
        await house.daemon.run()
    assert [path.name for path in short_dir.iterdir()] == ["inferd.lock"]


async def test_a_second_daemon_is_refused_and_harms_nobody(short_dir, autojump_clock):
    async with running(make_daemon(short_dir, ScriptedBackend())) as house:
        with pytest.raises(ListenError, match="already holds the lock"):
            await make_daemon(short_dir, ScriptedBackend()).daemon.run()
        async with await house.connect() as client:
            assert types(await client.ask()) == ["token", "token", "done"]


async def test_a_daemon_takes_the_place_of_one_that_died(short_dir, autojump_clock):
    for leaf in ("infer.sock", "admin.sock"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(short_dir / leaf))
    async with running(make_daemon(short_dir, ScriptedBackend())) as house:
        async with await house.connect() as client:
            assert types(await client.ask()) == ["token", "token", "done"]


async def test_no_more_run_than_a_backend_got_slots(short_dir, autojump_clock):
    able = BackendCapabilities(n_slots=1)
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER), capabilities=able)
    house = make_daemon(short_dir, backend, admission=AdmissionSettings(max_active=2))
    async with (
        running(house),
        await house.connect() as one,
        await house.connect() as two,
    ):
        for client in (one, two):
            await client.send(generate())
            await settled()
        assert gate_of(house) == (1, 1)


@pytest.fixture
def manager(short_dir):
    """A service manager's end of the notification socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"{short_dir}/notify")
        sock.setblocking(False)
        yield sock


def environ_of(manager: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.getsockname(), **more}


async def test_the_manager_hears_ready_when_clients_can_connect(
    short_dir, manager, autojump_clock
):
    house = make_daemon(
        short_dir / "run", ScriptedBackend(), environ=environ_of(manager)
    )
    async with running(house):
        assert house.infer_sock.exists()
        house.daemon.stop()
        await house.wait_ended()
    heard = [manager.recv(100).decode() for _ in range(3)]
    assert heard == ["STATUS=ready", "READY=1", "STOPPING=1\nSTATUS=draining"]


async def test_the_watchdog_is_fed_for_as_long_as_the_daemon_lives(
    short_dir, manager, autojump_clock
):
    environ = environ_of(manager, WATCHDOG_USEC="10000000")
    house = make_daemon(short_dir / "run", ScriptedBackend(), environ=environ)
    async with running(house):
        await trio.sleep(22)
        house.daemon.stop()
        await house.wait_ended()
        await trio.sleep(60)
    heard = [manager.recv(100) for _ in range(8)]
    assert heard.count(b"WATCHDOG=1") == 5
    with pytest.raises(BlockingIOError):
        manager.recv(100)


# --- the admin socket -------------------------------------------------------------------


async def test_a_listener_hears_a_daemon_s_life(short_dir, autojump_clock, nursery):
    backend = ScriptedBackend(is_ready=False)
    house = make_daemon(short_dir, backend)
    nursery.start_soon(house.run)
    await settled()
    async with await house.admin() as listener:
        await settled()
        house.board.ready("scripted", backend.capabilities)
        backend.become_ready()
        await ready(house)
        house.daemon.stop()
        frames = await listener.rest()
    assert [frame["status"] for frame in frames] == [
        "starting",
        "capabilities",
        "ready",
        "draining",
    ]


@pytest.mark.parametrize("n_commands_before", [0, 1, 5])
async def test_a_drain_that_is_ordered_is_confirmed_and_told_before_the_end(
    n_commands_before, short_dir, autojump_clock
):
    async with running(make_daemon(short_dir, ScriptedBackend())) as house:
        async with await house.admin() as operator:
            await operator.frame()
            names = [*["backends"] * n_commands_before, "drain"]
            lines = [to_line({"command": name}) for name in names]
            await operator.send(b"".join(lines))
            frames = await operator.rest()
            await house.wait_ended()
    words = [frame.get("command", frame.get("status")) for frame in frames]
    assert words == [*names, "draining"]


@pytest.mark.parametrize("n_events_before", [0, 1])
async def test_a_listener_hears_all_that_happened_before_the_end(
    n_events_before, short_dir, autojump_clock
):
    async with running(make_daemon(short_dir, ScriptedBackend())) as house:
        async with await house.admin() as listener:
            await listener.frame()
            for _ in range(n_events_before):
                house.board.all_ready()
            house.daemon.stop()
            words = [frame["status"] for frame in await listener.rest()]
    assert words == ["ready"] * n_events_before + ["draining"]


async def test_a_drain_that_is_ordered_twice_is_one(short_dir, autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=5))
    async with running(make_daemon(short_dir, backend)) as house:
        async with await house.connect() as client, await house.admin() as operator:
            await client.send(generate("r"))
            await settled()
            for _ in range(2):
                await operator.send(to_line({"command": "drain"}))
                await settled()
            assert types(await client.rest()) == ["token", "token", "done"]
            replies = [each for each in await operator.rest() if "command" in each]
            assert [each["ok"] for each in replies] == [True, True]
            await house.wait_ended()


async def test_an_operator_sees_and_cancels_what_runs_and_waits(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    house = make_daemon(short_dir, backend)
    async with running(house), await house.admin() as operator:
        await operator.frame()
        runs, waits = await house.connect(), await house.connect("infer.embed.sock")
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
    house = make_daemon(short_dir, backend)
    async with running(house), await house.admin() as operator:
        await operator.frame()
        async with await house.connect() as client:
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


async def test_metrics_count_what_is_there_and_what_was(short_dir, autojump_clock):
    backend = ScriptedBackend(Script(), Script(token_delay_s=FOR_EVER))
    house = make_daemon(short_dir, backend)
    async with running(house), await house.connect() as first:
        await first.ask()
        await first.send(generate("runs"))
        await settled()
        async with await house.connect() as second:
            await second.send(generate("waits"))
            await settled()
            assert "inferd_active_requests 1.0" in house.metrics.text()
            assert "inferd_queued_requests 1.0" in house.metrics.text()
            assert "inferd_unread_bytes 0.0" in house.metrics.text()
            ended = 'inferd_requests_total{outcome="end",socket="infer.sock"} 1.0'
            assert ended in house.metrics.text()
        house.board.died("scripted", "gone", Pause(1.0, breaker_is_open=False))
        assert 'inferd_worker_deaths_total{backend="scripted"} 1.0' in (
            house.metrics.text()
        )


async def test_listeners_find_room_when_clients_do_not(short_dir, autojump_clock):
    house = make_daemon(short_dir, ScriptedBackend(), max_connections=1)
    async with running(house), await house.connect(), await house.admin() as listener:
        assert (await listener.frame() or {})["status"] == "ready"


async def test_one_listener_too_many_is_let_go_without_a_word(
    short_dir, autojump_clock
):
    house = make_daemon(short_dir, ScriptedBackend(), max_admin_connections=1)
    async with running(house), await house.admin() as first:
        await first.frame()
        async with await house.admin() as second:
            assert await second.rest() == []


# --- clients ----------------------------------------------------------------------------


async def test_one_client_too_many_gets_one_frame_and_the_end(
    short_dir, autojump_clock
):
    house = make_daemon(short_dir, ScriptedBackend(), max_connections=2)
    async with running(house):
        clients = [await house.connect() for _ in range(2)]
        await settled()
        async with await house.connect() as refused:
            [frame] = await refused.rest()
        assert (frame["code"], frame["id"]) == ("queue_full", "")
        await clients.pop().aclose()
        await settled()
        async with await house.connect() as welcome:
            assert types(await welcome.ask()) == ["token", "token", "done"]
        await clients.pop().aclose()


async def test_a_client_that_does_not_read_is_dropped_as_configured(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(tokens=("x" * 10_000_000,)), Script())
    house = make_daemon(short_dir, backend, write_timeout_s=7)
    async with running(house), await house.connect() as silent:
        await silent.send(generate("silent"))
        async with await house.connect() as client:
            assert types(await client.ask()) == ["token", "token", "done"]
        assert trio.current_time() == 0
        await trio.sleep(7.5)
        with pytest.raises(AssertionError, match="half a frame"):
            await silent.rest()


async def test_a_bug_in_a_service_ends_its_request_alone(short_dir, autojump_clock):
    backend = ScriptedBackend(Script(failure=ZeroDivisionError()), Script())
    async with running(make_daemon(short_dir, backend)) as house:
        async with await house.connect() as client:
            with capture_logs() as log:
                error = (await client.ask("first"))[-1]
            assert (error["id"], error["code"]) == ("first", "internal")
            assert error["message"] in [line.get("bug") for line in log]
            assert (await client.ask("second"))[-1]["type"] == "done"
        await settled()
        assert gate_of(house) == (0, 0)


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


async def test_a_reload_is_in_force_for_what_comes(short_dir, autojump_clock):
    file = File(max_connections=1)
    backend = ScriptedBackend(Script(token_delay_s=5))
    house = make_daemon(short_dir, backend, read_config=file.read)
    async with running(house), await house.admin() as operator:
        await operator.frame()
        async with await house.connect() as client:
            await client.send(generate("runs"))
            await settled()
            reply = await order(operator, command="reload")
            assert reply["applied"] == ["limits.max_connections"]
            assert reply["needs_restart"] == ["admission.max_active"]
            async with await house.connect() as refused:
                assert (await refused.frame() or {})["code"] == "queue_full"
            assert types(await client.answer()) == ["token", "token", "done"]


async def test_a_reload_that_fails_is_told_and_changes_nothing(
    short_dir, autojump_clock
):
    file = File()
    file.complaint = "limits.drain_s = -1: expected `float` > 0.0"
    house = make_daemon(short_dir, ScriptedBackend(), read_config=file.read)
    async with running(house), await house.admin() as operator:
        await operator.frame()
        with capture_logs() as log:
            reply = await order(operator, command="reload")
        assert (reply["ok"], reply["error"]) == (False, file.complaint)
        assert [line["event"] for line in log] == ["admin.command", "config.refused"]
        async with await house.connect() as client:
            assert types(await client.ask()) == ["token", "token", "done"]


async def test_who_may_no_longer_come_in_is_let_go_at_a_reload(
    short_dir, monkeypatch, autojump_clock
):
    file = File()
    rule = AccessRule(gids=(4_000_000,))
    file.config = Config(access=AccessSettings(infer=rule))
    house = make_daemon(short_dir, ScriptedBackend(), read_config=file.read)
    async with running(house), await house.connect() as client:
        await settled()
        monkeypatch.setattr("inferd.server.access.is_operator", lambda _: False)
        house.daemon.reload()
        assert await client.rest() == []
        async with await house.connect() as refused:
            assert (await refused.frame() or {})["code"] == "permission_denied"


@pytest.mark.parametrize("complaint", ["", "no"])
async def test_the_manager_hears_of_a_reload_from_its_begin_to_its_end(
    complaint, short_dir, manager, autojump_clock
):
    file = File()
    file.complaint = complaint
    house = make_daemon(
        short_dir / "run",
        ScriptedBackend(),
        environ=environ_of(manager),
        read_config=file.read,
    )
    async with running(house):
        with suppress(ConfigError):
            house.daemon.reload()
    heard = [manager.recv(100).decode().partition("\n")[0] for _ in range(4)]
    assert heard == ["STATUS=ready", "READY=1", "RELOADING=1", "READY=1"]


async def test_the_manager_is_not_told_that_a_daemon_is_ready_which_reloads_first(
    short_dir, manager, autojump_clock, nursery
):
    backend = ScriptedBackend(is_ready=False)
    environ = environ_of(manager)
    house = make_daemon(
        short_dir / "run", backend, environ=environ, read_config=File().read
    )
    nursery.start_soon(house.run)
    await settled()
    house.daemon.reload()
    with pytest.raises(BlockingIOError):
        manager.recv(100)
    nursery.cancel_scope.cancel()


async def test_the_admin_socket_is_for_others_where_they_are_named(
    short_dir, autojump_clock
):
    access = AccessSettings(admin=AccessRule(uids=(5,)))
    async with running(
        make_daemon(short_dir, ScriptedBackend(), access=access)
    ) as house:
        assert stat.S_IMODE(house.admin_sock.stat().st_mode) == 0o660


async def test_a_daemon_without_descriptors_for_anybody_does_not_start(
    short_dir, monkeypatch
):
    monkeypatch.setattr("inferd.server.force.n_allowed", lambda: 30)
    with pytest.raises(ConfigError, match="open files = 30"):
        await make_daemon(short_dir, ScriptedBackend()).daemon.run()


# --- the end ----------------------------------------------------------------------------


async def test_stopping_an_idle_daemon_leaves_its_lock_file_alone(
    short_dir, autojump_clock
):
    backend = ScriptedBackend()
    async with running(make_daemon(short_dir, backend)) as house:
        house.daemon.stop()
        await house.wait_ended()
        assert [path.name for path in short_dir.iterdir()] == ["inferd.lock"]
        assert not backend.is_alive
        assert trio.current_time() == HEARING_S


async def test_draining_goes_in_order(short_dir, autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=5, tokens=("a",)))
    house = make_daemon(short_dir, backend, drain_s=15)
    events: list[tuple[float, str]] = []

    async def note(name: str, client: FrameClient):
        async with client:
            while (frame := await client.frame()) is not None:
                what = frame.get("status") or frame["type"]
                events.append((trio.current_time(), f"{name} {what}"))
        events.append((trio.current_time(), f"{name} EOF"))

    async with running(house), trio.open_nursery() as nursery:
        clients = [await house.connect() for _ in range(3)]
        for client in clients[:2]:
            await client.send(generate())
            await settled()
        for name, client in zip(("runs", "waits", "idle"), clients, strict=True):
            nursery.start_soon(note, name, client)
        nursery.start_soon(note, "listener", await house.admin())
        await settled()
        house.daemon.stop()
        await settled()
        assert not house.infer_sock.exists()
        assert house.admin_sock.exists()
        await house.wait_ended()
        await settled()
        nursery.cancel_scope.cancel()
    assert events[0] == (0, "listener ready")
    assert events[1:3] == [(0, "listener draining"), (LAST_CALL_S, "idle EOF")]
    assert events[3:6] == [(5, "runs token"), (5, "runs done"), (5, "runs EOF")]
    assert events[6:8] == [(10, "waits token"), (10, "waits done")]
    assert set(events[8:]) == {(10, "waits EOF"), (10, "listener EOF")}


async def test_what_is_not_done_in_time_gets_an_error(short_dir, autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with running(make_daemon(short_dir, backend, drain_s=15)) as house:
        clients = [await house.connect() for _ in range(3)]
        for n, client in enumerate(clients):
            await client.send(generate(f"r{n}"))
            await settled()
        house.daemon.stop()
        for n, client in enumerate(clients):
            [error] = await client.rest()
            assert (error["id"], error["code"]) == (f"r{n}", "backend_unavailable")
            assert trio.current_time() == 15
            await client.aclose()
        await house.wait_ended()
        assert backend.is_idle


async def test_one_who_waits_behind_a_client_that_does_not_read_is_told_in_time(
    short_dir, autojump_clock
):
    stalling = Script(tokens=("x" * 10_000_000, "y"), token_delay_s=10)
    backend = ScriptedBackend(stalling)
    async with running(make_daemon(short_dir, backend, drain_s=15)) as house:
        async with await house.connect() as silent, await house.connect() as client:
            for each in (silent, client):
                await each.send(generate("r"))
                await settled()
            house.daemon.stop()
            [error] = await client.rest()
            assert error["code"] == "backend_unavailable"
            assert trio.current_time() == 15
        await house.wait_ended()


async def test_a_job_that_hangs_in_prepare_does_not_outlast_the_drain(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(prepare_s=FOR_EVER))
    async with running(make_daemon(short_dir, backend, drain_s=15)) as house:
        async with await house.connect() as client:
            await client.send(generate("r"))
            await settled()
            house.daemon.stop()
            [error] = await client.rest()
        assert error["code"] == "backend_unavailable"
        await house.wait_ended()
    assert trio.current_time() == 15


@pytest.mark.parametrize(
    ("token_delay_s", "expected"), [(2, ["error"]), (1, ["token", "done"])]
)
async def test_a_client_that_reads_at_last_gets_its_last_frame(
    token_delay_s, expected, short_dir, autojump_clock
):
    script = Script(tokens=("x" * 1_000_000, "y"), token_delay_s=token_delay_s)
    house = make_daemon(short_dir, ScriptedBackend(script), drain_s=3)
    async with running(house), await house.connect() as client:
        await client.send(generate("r"))
        await settled()
        house.daemon.stop()
        await trio.sleep(3 + LAST_WORDS_S / 2)
        frames = await client.rest()
    assert types(frames) == ["token", *expected]


async def test_a_client_that_does_not_read_does_not_outlast_the_drain(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(tokens=("x" * 10_000_000,)))
    async with running(make_daemon(short_dir, backend, drain_s=15)) as house:
        async with await house.connect() as client:
            await client.send(generate("r"))
            await settled()
            house.daemon.stop()
            await house.wait_ended()
    assert trio.current_time() == 15 + LAST_WORDS_S


@pytest.mark.parametrize("leaf", REQUESTS)
async def test_every_request_sent_ahead_is_refused_while_draining(
    leaf, short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=1))
    async with running(make_daemon(short_dir, backend)) as house:
        async with await house.connect(leaf) as client:
            await client.send(b"".join(REQUESTS[leaf](f"r{n}") for n in range(3)))
            await settled()
            house.daemon.stop()
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
    async with running(make_daemon(short_dir, backend, drain_s=15)) as house:
        async with await house.connect() as client:
            await client.send(generate("r0") + generate("r1") + b"no JSON\n")
            await settled()
            house.daemon.stop()
            frames = await client.rest()
    assert [frame["id"] for frame in frames] == ["r0", "r1", ""]
    assert [frame["code"] for frame in frames] == [
        *("backend_unavailable", "backend_unavailable"),
        "invalid_request",
    ]
    assert trio.current_time() == 15


async def test_nobody_can_connect_while_draining(short_dir, autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=1))
    async with running(make_daemon(short_dir, backend)) as house:
        async with await house.connect() as client:
            await client.send(generate("r"))
            await settled()
            house.daemon.stop()
            await settled()
            with pytest.raises(FileNotFoundError):
                await house.connect()
            assert types(await client.rest()) == ["token", "token", "done"]


async def test_a_client_let_in_as_draining_begins_is_let_go(short_dir, autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=5))
    async with running(make_daemon(short_dir, backend, drain_s=15)) as house:
        async with await house.connect() as client, open_pair() as (late, theirs):
            await client.send(generate("r"))
            await settled()
            house.daemon.stop()
            await settled()
            surface = Surface("infer.sock", decode_generate, trio.Event())  # type: ignore[arg-type]
            with trio.fail_after(LAST_CALL_S + 0.1):
                await house.daemon._serve_client(surface, late)
            await late.aclose()
            assert await FrameClient(theirs).rest() == []


@pytest.mark.parametrize("leaf", REQUESTS)
async def test_who_was_let_in_may_ask_once_as_draining_begins(
    leaf, short_dir, autojump_clock
):
    async with running(make_daemon(short_dir, ScriptedBackend())) as house:
        async with await house.connect(leaf) as client:
            await settled()
            house.daemon.stop()
            await trio.sleep(LAST_CALL_S / 2)
            [*_, end] = await client.ask()
            assert (end["type"] in TERMINAL, end.get("code")) == (True, None)
            assert await client.frame() is None


@pytest.mark.parametrize("drain_s", [LAST_CALL_S / 2, LAST_CALL_S * 5])
async def test_who_says_nothing_holds_a_drain_up_no_longer_than_the_last_call(
    drain_s, short_dir, autojump_clock
):
    daemon = make_daemon(short_dir, ScriptedBackend(), drain_s=drain_s)
    async with running(daemon) as house, await house.connect() as client:
        await settled()
        house.daemon.stop()
        assert await client.frame() is None
        assert trio.current_time() == min(drain_s, LAST_CALL_S)


async def test_who_has_asked_before_is_not_waited_for(short_dir, autojump_clock):
    async with running(make_daemon(short_dir, ScriptedBackend())) as house:
        async with await house.connect() as client:
            await client.ask()
            house.daemon.stop()
            assert await client.frame() is None
            assert trio.current_time() < LAST_CALL_S / 2


# --- sockets that are held by somebody else -----------------------------------------------


async def test_nobody_at_an_inherited_socket_is_let_in_before_all_is_ready(
    short_dir, autojump_clock, nursery
):
    backend = ScriptedBackend(is_ready=False)
    with held(short_dir, "infer.sock") as hand_over:
        house = make_daemon(short_dir, backend, inherited=hand_over())
        nursery.start_soon(house.run)
        async with await house.connect() as client:
            await client.send(generate("r") + b"no JSON\n")
            await trio.sleep(1000)
            assert not house.daemon._guests
            backend.become_ready()
            frames = await client.rest()
        assert types(frames) == ["token", "token", "done", "error"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("leaves", [["infer.sock"], ["admin.sock", *REQUESTS]])
async def test_who_comes_while_a_daemon_drains_is_served_by_the_next(
    leaves, short_dir, autojump_clock
):
    with held(short_dir, *leaves) as hand_over:
        first = make_daemon(short_dir, ScriptedBackend(), inherited=hand_over())
        async with running(first) as house:
            house.daemon.stop()
            client = await house.connect()
            await client.send(generate("r"))
            await house.wait_ended()
        async with client:
            assert sorted(path.name for path in short_dir.glob("*.sock")) == sorted(
                leaves
            )
            second = make_daemon(short_dir, ScriptedBackend(), inherited=hand_over())
            async with running(second):
                assert types(await client.answer()) == ["token", "token", "done"]


@pytest.mark.parametrize("leaf", ["infer.v2.sock", "infer.embed.sock"])
async def test_at_an_inherited_socket_that_nobody_serves_each_client_is_told(
    leaf, short_dir, autojump_clock
):
    backend = ScriptedBackend(capabilities=BackendCapabilities())
    with held(short_dir, leaf, "infer.sock") as hand_over:
        house = make_daemon(short_dir, backend, inherited=hand_over())
        async with running(house):
            for n in range(3):
                async with await house.connect(leaf) as client:
                    if n:
                        with suppress(trio.BrokenResourceError):  # gone already
                            await client.send(REQUESTS[leaf]())
                    [frame] = await client.rest()
                assert (frame["id"], frame["code"]) == ("", "backend_unavailable")
                assert frame["message"] == f"no backend serves {leaf}"


async def test_a_surface_that_is_turned_off_is_one_that_nobody_serves(
    short_dir, autojump_clock
):
    with held(short_dir, "infer.v2.sock") as hand_over:
        daemon = make_daemon(
            short_dir,
            ScriptedBackend(),
            listen=Listen(v2=False),
            inherited=hand_over(),
        )
        async with running(daemon) as house:
            async with await house.connect("infer.v2.sock") as client:
                assert types(await client.rest()) == ["error"]


@pytest.mark.parametrize("n_more", [1, 2])
async def test_asked_again_to_stop_it_ends_at_once_and_all_are_told(
    n_more, short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(token_delay_s=FOR_EVER))
    async with running(make_daemon(short_dir, backend)) as house:
        clients = [await house.connect() for _ in range(2)]
        for client in clients:
            await client.send(generate("r"))
            await settled()
        house.daemon.stop()
        await trio.sleep(2 * LAST_CALL_S)
        for _ in range(n_more):
            house.daemon.stop()
        for client in clients:
            [error] = await client.rest()
            assert (error["id"], error["code"]) == ("r", "backend_unavailable")
            await client.aclose()
        await house.wait_ended()
        assert trio.current_time() == 2 * LAST_CALL_S
        assert [path.name for path in short_dir.iterdir()] == ["inferd.lock"]


async def test_asked_again_to_stop_it_waits_for_nobody_s_first_question(
    short_dir, autojump_clock
):
    async with running(make_daemon(short_dir, ScriptedBackend())) as house:
        async with await house.connect() as client:
            await settled()
            house.daemon.stop()
            await settled()
            house.daemon.stop()
            assert await client.rest() == []
            await house.wait_ended()
        assert trio.current_time() == 0


async def test_a_client_that_does_not_read_holds_up_an_end_at_once_for_a_moment(
    short_dir, autojump_clock
):
    backend = ScriptedBackend(Script(tokens=("x" * 10_000_000,)))
    async with running(make_daemon(short_dir, backend)) as house:
        async with await house.connect() as client:
            await client.send(generate("r"))
            await settled()
            for _ in range(3):
                house.daemon.stop()
                await settled()
            await house.wait_ended()
    assert trio.current_time() == LAST_WORDS_S


async def test_asked_to_stop_before_it_is_ready_it_ends_at_once(
    short_dir, autojump_clock, nursery
):
    house = make_daemon(short_dir, ScriptedBackend(is_ready=False))
    nursery.start_soon(house.run)
    await settled()
    house.daemon.stop()
    await house.wait_ended()
    assert [path.name for path in short_dir.iterdir()] == ["inferd.lock"]


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
        house = make_daemon(directory, backend, admission=admission, drain_s=5)
        async with running(house), trio.open_nursery() as nursery:
            for behaviour, frames in zip(behaviours, seen, strict=True):
                client = await house.connect(behaviour.leaf)
                nursery.start_soon(visit, client, behaviour, frames)
            await trio.sleep(stops_s)
            house.daemon.stop()
            await house.wait_ended()
            assert trio.current_time() <= stops_s + 5 + LAST_WORDS_S
            await settled()
            nursery.cancel_scope.cancel()
        assert gate_of(house) == (0, 0)

    with TemporaryDirectory(prefix="inferd-") as directory, capture_logs():
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(main, Path(directory), clock=clock)
    for behaviour, frames in zip(behaviours, seen, strict=True):
        if behaviour.stays:
            assert n_answers(frames) == behaviour.n_requests
    assert backend.is_idle
