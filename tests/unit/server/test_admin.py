from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing

from inferd.backend import BackendCapabilities
from inferd.engine.restart import Pause
from inferd.limits import ADMIN_LISTENER_EVENTS
from inferd.server.admin import serve_admin
from inferd.server.hangup import Hangups
from inferd.server.status import StatusBoard
from tests.fakes.streams import FrameClient, unix_pair

BACKOFF = Pause(0.5, breaker_is_open=False)
LONG_REASON = "x" * 4_000
"""So that a few events fill a socket's buffer."""


class AdminDesk:
    """Serves listeners of one board, each over a socketpair."""

    def __init__(self, nursery: trio.Nursery, hangups: Hangups) -> None:
        self.board = StatusBoard()
        self._nursery = nursery
        self._hangups = hangups

    def connect(self) -> FrameClient:
        ours, theirs = unix_pair()
        self._nursery.start_soon(self._serve, ours)
        return FrameClient(theirs)

    @property
    def n_served(self) -> int:
        return len(self._nursery.child_tasks)

    async def _serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            await serve_admin(
                stream, self.board, hangups=self._hangups, write_timeout_s=60
            )


@asynccontextmanager
async def desk() -> AsyncIterator[AdminDesk]:
    hangups = Hangups()
    async with trio.open_nursery() as watching:
        watching.start_soon(hangups.run)
        async with trio.open_nursery() as nursery:
            yield AdminDesk(nursery, hangups)
            nursery.cancel_scope.cancel()
        watching.cancel_scope.cancel()


async def settled():
    await trio.testing.wait_all_tasks_blocked()


async def test_a_listener_hears_the_present_and_then_every_event(autojump_clock):
    async with desk() as admin, admin.connect() as client:
        admin.board.ready("chat", BackendCapabilities())
        await settled()
        admin.board.all_ready()
        admin.board.draining()
        words = [(await client.frame() or {})["status"] for _ in range(4)]
    assert words == ["capabilities", "starting", "ready", "draining"]


async def test_what_a_listener_sends_is_never_read(autojump_clock):
    async with desk() as admin, admin.connect() as client:
        with trio.move_on_after(1) as scope:
            await client.send(b"x" * 10_000_000)
        assert scope.cancelled_caught
        assert (await client.frame() or {})["status"] == "starting"


async def test_a_listener_that_left_is_forgotten_at_once(autojump_clock):
    async with desk() as admin:
        client = admin.connect()
        await client.send(b"unread\n")
        await settled()
        assert admin.n_served == 1
        await client.aclose()
        await settled()
        assert admin.n_served == 0


async def test_a_listener_that_ended_its_side_still_hears(autojump_clock):
    async with desk() as admin, admin.connect() as client:
        await client.half_close()
        await client.frame()
        await trio.sleep(100)
        admin.board.all_ready()
        assert (await client.frame() or {})["status"] == "ready"


async def test_a_listener_that_lags_too_far_gets_the_end_and_others_go_on(
    autojump_clock,
):
    async with desk() as admin, admin.connect() as slow, admin.connect() as quick:
        await quick.frame()
        for n in range(ADMIN_LISTENER_EVENTS + 100):
            admin.board.died("chat", f"{n} {LONG_REASON}", BACKOFF)
            await quick.frame()
        frames = await slow.rest()
        assert len(frames) < 1 + ADMIN_LISTENER_EVENTS + 100
        admin.board.draining()
        assert (await quick.frame() or {})["status"] == "draining"


async def test_a_listener_that_stops_reading_is_dropped_after_a_while(autojump_clock):
    async with desk() as admin, admin.connect() as client:
        await client.frame()
        for n in range(100):
            admin.board.died("chat", f"{n} {LONG_REASON}", BACKOFF)
        await trio.sleep(59)
        assert admin.n_served == 1
        await trio.sleep(2)
        assert admin.n_served == 0
        assert len(await client.rest()) < 100
