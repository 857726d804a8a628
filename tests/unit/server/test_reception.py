import errno
import json
import os
import socket
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from inferd.errors import PermissionDeniedError, TooManyConnectionsError
from inferd.server.access import Access, Rule
from inferd.server.descriptors import accept
from inferd.server.limits import (
    HEARD_OUT_S,
    MAX_HEARD_OUT,
    REFUSALS_LOGGED_EVERY_S,
)
from inferd.server.listen import ADMIN_MODE, bind
from inferd.server.metrics import Metrics
from inferd.server.reception import (
    SHORTAGE_PAUSE_S,
    SHORTAGES,
    Door,
    Reception,
    in_a_frame,
    in_a_reply,
    unserved,
)
from inferd.server.room import Room
from tests.fakes.streams import Frame, FrameClient, bare, fill_pipe, generate, open_pair

FULL = 'inferd_refused_connections_total{code="queue_full",socket="infer.sock"}'


async def stay(_: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def crash(_: trio.SocketStream) -> None:
    raise ZeroDivisionError


async def echo(stream: trio.SocketStream) -> None:
    async for data in stream:
        await stream.send_all(data)


def door(serve=stay, n_places=1, refusal=in_a_frame, **fields) -> Door:
    chosen = {"is_kept_open": False, "mode": ADMIN_MODE, **fields}
    return Door("infer.sock", serve, Room(n_places), refusal, **chosen)


@pytest.fixture
def reception():
    reception = Reception(Metrics())
    reception.open()
    yield reception
    reception.close()


async def settled():
    await trio.testing.wait_all_tasks_blocked()


async def receive(reception: Reception, stream: trio.SocketStream, door: Door) -> None:
    """Let one in, and wait until it has gone."""
    async with trio.open_nursery() as clients:
        reception.receive(bare(stream), door, clients)


async def turned_away(reception: Reception, door: Door) -> list[Frame]:
    """Come in, be turned away, and read what is said."""
    async with open_pair() as (ours, theirs):
        await theirs.send_eof()
        await receive(reception, ours, door)
        return await FrameClient(theirs).rest()


async def test_one_too_many_gets_one_frame_without_an_id(reception):
    with capture_logs() as log:
        [frame] = await turned_away(reception, door(n_places=0))
    assert (frame["type"], frame["id"]) == ("error", "")
    assert frame["code"] == "queue_full"
    [line] = log
    assert (line["event"], line["code"]) == ("client.refused", "queue_full")
    assert (line["socket"], line["peer_uid"]) == ("infer.sock", os.getuid())
    assert f"{FULL} 1.0" in reception._metrics.text()


async def test_one_who_may_not_come_in_gets_one_frame_without_an_id(
    reception, monkeypatch
):
    monkeypatch.setattr("inferd.server.access.is_operator", lambda _: False)
    reception.access = Access({"infer.sock": Rule()})
    with capture_logs() as log:
        [frame] = await turned_away(reception, door(n_places=5))
    assert (frame["type"], frame["id"]) == ("error", "")
    assert frame["code"] == "permission_denied"
    assert frame["message"] == f"uid {os.getuid()} may not use infer.sock"
    assert log[0]["peer"] == f"unix:{os.getuid()}:{os.getpid()}"
    assert 'code="permission_denied"' in reception._metrics.text()


async def test_one_whom_nobody_serves_is_told_at_which_socket(reception):
    with capture_logs() as log:
        [frame] = await turned_away(reception, unserved("infer.embed.sock"))
    assert (frame["id"], frame["code"]) == ("", "backend_unavailable")
    assert frame["message"] == "no backend serves infer.embed.sock"
    [line] = log
    assert (line["code"], line["wire_version"]) == ("backend_unavailable", "embed")


def test_a_listener_too_many_hears_nothing_and_one_who_may_not_listen_a_reply():
    assert in_a_reply(TooManyConnectionsError()) == b""
    reply = json.loads(in_a_reply(PermissionDeniedError(7, "admin.sock")))
    assert (reply["id"], reply["type"], reply["ok"]) == ("admin", "reply", False)
    assert reply["error"] == "uid 7 may not use admin.sock"


async def test_one_too_many_who_left_or_asked_already_is_let_go(
    reception, autojump_clock
):
    async with open_pair() as (gone, theirs):
        await theirs.aclose()
        await receive(reception, gone, door(n_places=0))
    async with open_pair() as (eager, theirs):
        await theirs.send_all(generate("early"))
        await receive(reception, eager, door(n_places=0))
        [frame] = await FrameClient(theirs).rest()
    assert frame["id"] == ""


async def test_who_is_turned_away_may_write_before_the_pipe_is_gone(
    reception, nursery, autojump_clock
):
    async with open_pair() as (ours, theirs):
        reception.receive(bare(ours), door(n_places=0), nursery)
        for _ in range(3):
            await settled()
            await theirs.send_all(b"{}\n")
        await theirs.send_eof()
        await settled()
        assert ours.socket.fileno() == -1
    assert trio.current_time() == 0


async def test_who_is_turned_away_is_not_waited_for_for_long(reception, autojump_clock):
    async with open_pair() as (ours, _):
        fill_pipe(ours)
        await receive(reception, ours, door(n_places=0))
    assert trio.current_time() == HEARD_OUT_S


async def test_of_a_crowd_that_is_turned_away_few_are_waited_for(
    reception, nursery, autojump_clock
):
    full = door(n_places=0)
    async with AsyncExitStack() as pairs:
        crowd = [await pairs.enter_async_context(open_pair()) for _ in range(20)]
        for ours, _ in crowd:
            reception.receive(bare(ours), full, nursery)
        n_open = sum(ours.socket.fileno() >= 0 for ours, _ in crowd)
        assert n_open == MAX_HEARD_OUT
        await trio.sleep(2 * HEARD_OUT_S)
        ours, _ = await pairs.enter_async_context(open_pair())
        reception.receive(bare(ours), full, nursery)
        assert ours.socket.fileno() >= 0
        await trio.sleep(2 * HEARD_OUT_S)


async def test_without_a_descriptor_to_spare_nobody_is_waited_for(reception, nursery):
    reception.close()
    async with open_pair() as (ours, theirs):
        reception.receive(bare(ours), door(n_places=0), nursery)
        assert ours.socket.fileno() == -1
        [frame] = await FrameClient(theirs).rest()
    assert frame["code"] == "queue_full"


async def test_a_crash_is_logged_and_frees_the_place(reception):
    crashing = door(crash)
    with capture_logs() as log:
        for _ in range(2):
            async with open_pair() as (ours, theirs):
                await receive(reception, ours, crashing)
                assert await FrameClient(theirs).rest() == []
    assert [line["event"] for line in log] == ["client.crashed"] * 2


async def test_leaving_frees_the_place_however_it_happens(nursery, reception):
    staying = door(stay)
    async with open_pair() as (ours, _):
        with trio.CancelScope() as scope:
            nursery.start_soon(_cancel, scope)
            await receive(reception, ours, staying)
    assert staying.room.n_held == 0


async def _cancel(scope: trio.CancelScope) -> None:
    await settled()
    scope.cancel()


async def test_a_crowd_that_is_turned_away_has_a_line_of_the_log_now_and_then(
    reception, autojump_clock
):
    full = door(n_places=0)
    with capture_logs() as log:
        for _ in range(100):
            await turned_away(reception, full)
        await trio.sleep(REFUSALS_LOGGED_EVERY_S)
        await turned_away(reception, full)
    assert [line["times"] for line in log] == [1, 100]
    assert f"{FULL} 101.0" in reception._metrics.text()


# --- short of descriptors ---------------------------------------------------------------


class ShortListener:
    """A listener whose accept fails for want of descriptors, while it is short."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self.socket = listener.socket
        self.is_short = True
        self.n_tries = 0
        self.error = errno.EMFILE
        self._listener = listener

    def accept(self, _: object) -> socket.socket | None:
        if not self.is_short:
            return accept(self._listener)
        self.n_tries += 1
        raise OSError(self.error, os.strerror(self.error))


@asynccontextmanager
async def short_of_descriptors(reception, directory, nursery, door):
    """Receive on a socket while there are no descriptors."""
    listener = ShortListener(bind(directory / "s", mode=ADMIN_MODE))
    scope = trio.CancelScope()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inferd.server.reception.accept", listener.accept)
        nursery.start_soon(reception.receive_all, listener, door, nursery, scope)
        yield listener
        nursery.cancel_scope.cancel()


async def connect(directory) -> FrameClient:
    return FrameClient(await trio.open_unix_socket(directory / "s"))


@pytest.mark.parametrize("n_accepted", [1, 5])
async def test_a_batch_takes_so_long_and_one_more(
    n_accepted, reception, short_dir, nursery, monkeypatch
):
    seconds = -1.0 if n_accepted == 1 else 60.0
    monkeypatch.setattr("inferd.server.reception.ACCEPT_S", seconds)
    listener = bind(short_dir / "s", mode=ADMIN_MODE)
    clients = [await connect(short_dir) for _ in range(5)]
    place = door(echo, 100)
    assert reception._receive_some(listener, place, nursery)
    assert place.room.n_held == n_accepted
    await listener.aclose()
    for client in clients:
        await client.aclose()
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("number", SHORTAGES)
async def test_clients_are_told_that_there_is_no_room(
    number, reception, short_dir, nursery
):
    async with short_of_descriptors(
        reception, short_dir, nursery, door(echo, 100)
    ) as listener:
        listener.error = number
        with capture_logs() as log:
            for _ in range(20):
                async with await connect(short_dir) as client:
                    [frame] = await client.rest()
                    assert frame["code"] == "queue_full"
    assert [line["event"] for line in log] == ["descriptors.short", "client.refused"]


async def test_an_operator_is_served_with_the_spare_one(reception, short_dir, nursery):
    admin = door(echo, 100, is_kept_open=True)
    async with short_of_descriptors(reception, short_dir, nursery, admin):
        for _ in range(3):
            async with await connect(short_dir) as client:
                await client.send(b"{}\n")
                assert await client.frame() == {}
            await settled()


async def test_without_even_the_spare_one_it_tries_again_now_and_then(
    reception, short_dir, nursery, autojump_clock
):
    reception.close()
    async with short_of_descriptors(
        reception, short_dir, nursery, door(echo, 100)
    ) as listener:
        async with await connect(short_dir) as client:
            await trio.sleep(10.5 * SHORTAGE_PAUSE_S)
            assert listener.n_tries == 11
            listener.is_short = False
            await client.send(b"{}\n")
            assert await client.frame() == {}


async def test_any_other_failure_is_a_bug(reception, short_dir, monkeypatch):
    listener = ShortListener(bind(short_dir / "s", mode=ADMIN_MODE))
    listener.error = errno.EBADF
    monkeypatch.setattr("inferd.server.reception.accept", listener.accept)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{short_dir}/s")
        with pytest.RaisesGroup(OSError, flatten_subgroups=True):
            async with trio.open_nursery() as nursery:
                await reception.receive_all(
                    listener, door(), nursery, trio.CancelScope()
                )
