import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace

import trio
import trio.testing
from structlog.testing import capture_logs

from inferd import surfaces
from inferd.admission.control import Admission
from inferd.backend.capabilities import BackendCapabilities
from inferd.engine.supervisor.restart_policy import RestartDelay
from inferd.limits.connections import ADMIN_LISTENER_EVENTS
from inferd.limits.protocol import MAX_COMMAND_BYTES
from inferd.server.admin.commands import Commands
from inferd.server.admin.reload import ReloadResult
from inferd.server.admin.serve import serve_admin
from inferd.server.connection.deps import ConnectionDeps
from inferd.server.identity.mapping import Identities
from inferd.server.identity.peer import Peer, peer_of
from inferd.server.inflight import InFlight
from inferd.server.queue.requests import RequestQueue
from inferd.server.request_context import RequestContext
from inferd.server.telemetry.metrics import Metrics
from inferd.server.telemetry.status import StatusBoard
from tests.fakes.backend import ScriptedBackend
from tests.fakes.serving import LocalServer
from tests.fakes.streams import Frame, FrameClient, to_line, unix_pair

BACKOFF = RestartDelay(0.5, breaker_is_open=False)
LONG_REASON = "x" * 4_000
"""So that a few events fill a socket's buffer."""


async def nothing_reloaded() -> ReloadResult:
    return ReloadResult([], [])


class AdminServer:
    """Serves listeners of one board, each over a socketpair."""

    def __init__(self, nursery: trio.Nursery, deps: ConnectionDeps) -> None:
        self.board = StatusBoard()
        metrics = Metrics()
        self.in_flight = InFlight(metrics)
        self.commands = Commands(
            in_flight=self.in_flight,
            queue=RequestQueue(Admission(max_active=1, max_queued=1)),
            backends=[ScriptedBackend()],
            metrics=metrics,
            drain=self._drain,
            reload=nothing_reloaded,
        )
        self._nursery = nursery
        self._deps = deps

    def _drain(self) -> bool:
        self.board.draining()
        return True

    def connect(self) -> FrameClient:
        ours, theirs = unix_pair()
        self._nursery.start_soon(self._serve, ours)
        return FrameClient(theirs, "admin.sock")

    @property
    def n_served(self) -> int:
        return len(self._nursery.child_tasks)

    async def _serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            peer = peer_of(stream, Identities())
            await serve_admin(
                stream,
                self.board,
                partial(self.commands.answer, peer=peer),
                self._deps,
            )


@asynccontextmanager
async def admin_server() -> AsyncIterator[AdminServer]:
    deps = LocalServer().deps
    async with trio.open_nursery() as watching:
        watching.start_soon(deps.disconnects.run)
        async with trio.open_nursery() as nursery:
            yield AdminServer(nursery, deps)
            nursery.cancel_scope.cancel()
        watching.cancel_scope.cancel()


async def settled():
    await trio.testing.wait_all_tasks_blocked()


async def test_a_client_gets_the_present_status_and_then_every_event(autojump_clock):
    async with admin_server() as admin, admin.connect() as client:
        admin.board.ready("chat", BackendCapabilities())
        await settled()
        admin.board.all_ready()
        admin.board.draining()
        words = [(await client.frame() or {})["status"] for _ in range(4)]
    assert words == ["capabilities", "starting", "ready", "draining"]


async def test_a_disconnected_client_is_removed_at_once(autojump_clock):
    async with admin_server() as admin:
        client = admin.connect()
        await client.send(b"unread\n")
        await settled()
        assert admin.n_served == 1
        await client.aclose()
        await settled()
        assert admin.n_served == 0


async def test_a_client_that_shut_down_its_side_still_gets_events(autojump_clock):
    async with admin_server() as admin, admin.connect() as client:
        await client.half_close()
        await client.frame()
        await trio.sleep(100)
        admin.board.all_ready()
        assert (await client.frame() or {})["status"] == "ready"


async def test_a_client_that_lags_too_far_gets_eof_and_others_go_on(
    autojump_clock,
):
    async with (
        admin_server() as admin,
        admin.connect() as slow,
        admin.connect() as quick,
    ):
        await quick.frame()
        for n in range(ADMIN_LISTENER_EVENTS + 100):
            admin.board.died("chat", f"{n} {LONG_REASON}", BACKOFF)
            await quick.frame()
        frames = await slow.rest()
        assert len(frames) < 1 + ADMIN_LISTENER_EVENTS + 100
        admin.board.draining()
        assert (await quick.frame() or {})["status"] == "draining"


async def test_a_client_that_stops_reading_is_disconnected_after_a_while(
    autojump_clock,
):
    async with admin_server() as admin, admin.connect() as client:
        await client.frame()
        for n in range(100):
            admin.board.died("chat", f"{n} {LONG_REASON}", BACKOFF)
        await trio.sleep(59)
        assert admin.n_served == 1
        await trio.sleep(2)
        assert admin.n_served == 0
        assert len(await client.rest()) < 100


# --- commands ---------------------------------------------------------------------------


def word_of(frame: Frame | None) -> str:
    """Tell a reply by its command and an event by its status."""
    assert frame is not None
    return str(frame["command"] if frame["type"] == "reply" else frame["status"])


async def words(client: FrameClient, n_frames: int) -> list[str]:
    return [word_of(await client.frame()) for _ in range(n_frames)]


async def test_a_command_is_answered_after_the_present_status(autojump_clock):
    async with admin_server() as admin, admin.connect() as client:
        await client.send(to_line({"command": "requests"}))
        assert await words(client, 2) == ["starting", "requests"]


async def test_commands_are_answered_one_by_one_and_in_order(autojump_clock):
    names = ["backends", "metrics", "requests", "nonsense", "metrics"]
    async with admin_server() as admin, admin.connect() as client:
        await client.send(b"".join(to_line({"command": name}) for name in names))
        assert await words(client, 6) == ["starting", *names]


async def test_a_command_may_come_in_single_bytes(autojump_clock):
    async with admin_server() as admin, admin.connect() as client:
        for byte in to_line({"command": "requests"}):
            await client.send(bytes([byte]))
        assert await words(client, 2) == ["starting", "requests"]


async def test_who_has_asked_and_asks_no_more_gets_the_replies_and_the_end(
    autojump_clock,
):
    line = to_line({"command": "requests"})
    async with admin_server() as admin:
        for sent, answers in ((line, 1), (line.rstrip(), 1), (line * 3 + b"?", 4)):
            async with admin.connect() as client:
                await client.send(sent)
                await client.half_close()
                first, second, *_ = await words(client, 1 + answers)
                assert (first, second) == ("starting", "requests")
                assert await client.frame() is None


async def test_replies_and_events_are_whole_lines_in_their_order(autojump_clock):
    async with admin_server() as admin, admin.connect() as client:
        await client.frame()
        for n in range(20):
            admin.board.died("chat", f"{n} {LONG_REASON}", BACKOFF)
            await client.send(to_line({"command": "metrics"}))
            await settled()
        assert await words(client, 40) == ["restarting", "metrics"] * 20


async def test_a_reply_goes_to_its_client_only(autojump_clock):
    async with (
        admin_server() as admin,
        admin.connect() as one,
        admin.connect() as other,
    ):
        await one.send(to_line({"command": "requests"}))
        await settled()
        admin.board.all_ready()
        assert await words(one, 3) == ["starting", "requests", "ready"]
        assert await words(other, 2) == ["starting", "ready"]


async def test_a_drain_is_confirmed_before_it_is_published(autojump_clock):
    async with (
        admin_server() as admin,
        admin.connect() as client,
        admin.connect() as other,
    ):
        await settled()
        await client.send(to_line({"command": "drain"}))
        assert set(await words(client, 3)) == {"starting", "drain", "draining"}
        assert await words(other, 2) == ["starting", "draining"]


async def test_the_kernel_identifies_the_client_that_cancels(
    monkeypatch, autojump_clock
):
    monkeypatch.setattr("inferd.server.identity.access.ROOT", -1)
    fake = SimpleNamespace(getuid=lambda: -1)
    monkeypatch.setattr("inferd.server.identity.access.os", fake)
    async with admin_server() as admin, admin.connect() as client:
        for uid, is_mine in ((os.getuid(), True), (os.getuid() + 1, False)):
            context = RequestContext(Peer(1, uid, 1), surfaces.INFER, "r", 0.0)
            admin.in_flight.add(context)
            await client.send(to_line({"command": "cancel", "id": "r"}))
            while (frame := await client.frame() or {})["type"] != "reply":
                pass
            assert frame["ok"] is context.is_cancelled is is_mine
            admin.in_flight.remove(context)


async def test_a_line_of_just_the_bound_is_read_and_a_longer_one_is_the_last(
    autojump_clock,
):
    async with admin_server() as admin, admin.connect() as client:
        line = to_line({"command": "requests"}).rstrip()
        await client.send(line.ljust(MAX_COMMAND_BYTES) + b"\n")
        assert await words(client, 2) == ["starting", "requests"]
        await client.send(line.ljust(MAX_COMMAND_BYTES + 1) + b"\n" + line + b"\n")
        refusal = await client.frame() or {}
        assert (refusal["command"], refusal["ok"]) == ("", False)
        assert str(MAX_COMMAND_BYTES) in refusal["error"]
        admin.board.all_ready()
        assert await client.frame() is None


async def test_many_commands_at_once_delay_no_other_client(autojump_clock):
    async with (
        admin_server() as admin,
        admin.connect() as greedy,
        admin.connect() as other,
    ):
        await settled()
        with capture_logs() as log:
            await greedy.send(to_line({"command": "requests"}) * 100)
            await other.send(to_line({"command": "backends"}))
            await settled()
        asked = [line["command"] for line in log]
        assert len(asked) == 101
        assert asked.index("backends") < 50
        assert await words(greedy, 101) == ["starting", *["requests"] * 100]


async def test_a_client_that_does_not_read_has_one_reply_queued_and_no_more(
    autojump_clock,
):
    async with admin_server() as admin, admin.connect() as client:
        admin.commands.metrics.add_gauge("n", LONG_REASON * 100, lambda: 0)
        with capture_logs() as log:
            await client.send(to_line({"command": "metrics"}) * 100)
            await settled()
            assert len(log) == 2  # one of which is being written
            assert await words(client, 101) == ["starting", *["metrics"] * 100]


async def test_a_client_that_sends_commands_and_does_not_read_is_disconnected(
    autojump_clock,
):
    async with admin_server() as admin, admin.connect() as client:
        n_asked = 100
        admin.commands.metrics.add_gauge("n", LONG_REASON, lambda: 0)
        await client.send(to_line({"command": "metrics"}) * n_asked)
        await trio.sleep(59)
        assert admin.n_served == 1
        await trio.sleep(2)
        assert admin.n_served == 0
        assert len(await client.rest()) < n_asked
