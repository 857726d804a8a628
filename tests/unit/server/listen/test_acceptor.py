import errno
import itertools
import json
import os
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from inferd import surfaces
from inferd.errors import PermissionDeniedError, TooManyConnectionsError
from inferd.limits.log import REFUSAL_LOG_INTERVAL_S
from inferd.limits.server import (
    ACCEPT_BURST_INTERVAL_S,
    ACCEPT_BURST_PASS_S,
    ACCEPT_PASS_S,
    LINGER_S,
    LOOP_PASS_S,
    MAX_LINGERING,
)
from inferd.server.connection.limit import ConnectionLimit
from inferd.server.event_loop.scheduler import LoopScheduler
from inferd.server.identity.access import Access, Rule
from inferd.server.listen.acceptor import (
    ACCEPT_RETRY_S,
    RESOURCE_ERRNOS,
    Acceptor,
    ListenerSpec,
    refusal_frame,
    refusal_reply,
)
from inferd.server.listen.fd_budget import accept
from inferd.server.telemetry.metrics import Metrics
from inferd.service.bind import bind
from inferd.surfaces import ADMIN_MODE
from tests.fakes.clock import Clock
from tests.fakes.serving import idle_scheduler
from tests.fakes.streams import Frame, FrameClient, bare, fill_pipe, generate, open_pair

BUDGET = "inferd.server.listen.accept_budget"
FULL = 'inferd_refused_connections_total{code="queue_full",socket="infer.sock"}'


async def stay(_: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def crash(_: trio.SocketStream) -> None:
    raise ZeroDivisionError


async def echo(stream: trio.SocketStream) -> None:
    async for data in stream:
        await stream.send_all(data)


def make_spec(
    serve=stay, max_connections=1, refusal=refusal_frame, **fields
) -> ListenerSpec:
    chosen = {"may_use_reserve_fd": False, "mode": ADMIN_MODE, **fields}
    return ListenerSpec(
        surfaces.INFER, serve, ConnectionLimit(max_connections), refusal, **chosen
    )


@pytest.fixture
def acceptor():
    acceptor = Acceptor(Metrics(), idle_scheduler())
    acceptor.open()
    yield acceptor
    acceptor.close()


async def settled():
    await trio.testing.wait_all_tasks_blocked()


async def serve_one(
    acceptor: Acceptor, stream: trio.SocketStream, make_spec: ListenerSpec
) -> None:
    """Serve a connection until it is closed."""
    async with trio.open_nursery() as clients:
        acceptor.handle(bare(stream), make_spec, clients)


async def refused(acceptor: Acceptor, make_spec: ListenerSpec) -> list[Frame]:
    """Connect, be refused, and read the frames."""
    async with open_pair() as (ours, theirs):
        await theirs.send_eof()
        await serve_one(acceptor, ours, make_spec)
        return await FrameClient(theirs).rest()


async def test_a_client_over_the_limit_gets_one_frame_without_an_id(acceptor):
    with capture_logs() as log:
        [frame] = await refused(acceptor, make_spec(max_connections=0))
    assert (frame["type"], frame["id"]) == ("error", "")
    assert frame["code"] == "queue_full"
    [line] = log
    assert (line["event"], line["code"]) == ("client.refused", "queue_full")
    assert (line["socket"], line["peer_uid"]) == ("infer.sock", os.getuid())
    assert f"{FULL} 1.0" in acceptor._metrics.text()


async def test_a_client_without_access_gets_one_frame_without_an_id(
    acceptor, monkeypatch
):
    monkeypatch.setattr("inferd.server.identity.access.is_operator", lambda _: False)
    acceptor.access = Access({"infer.sock": Rule()})
    with capture_logs() as log:
        [frame] = await refused(acceptor, make_spec(max_connections=5))
    assert (frame["type"], frame["id"]) == ("error", "")
    assert frame["code"] == "permission_denied"
    assert frame["message"] == f"uid {os.getuid()} may not use infer.sock"
    assert log[0]["peer"] == f"unix:{os.getuid()}:{os.getpid()}"
    assert 'code="permission_denied"' in acceptor._metrics.text()


async def test_a_client_that_no_backend_serves_is_told_at_which_socket(acceptor):
    acceptor.unserved = {"infer.embed.sock"}
    with capture_logs() as log:
        spec = make_spec()._replace(surface=surfaces.EMBED)
        [frame] = await refused(acceptor, spec)
    assert (frame["id"], frame["code"]) == ("", "backend_unavailable")
    assert frame["message"] == "no backend serves infer.embed.sock"
    [line] = log
    assert (line["code"], line["wire_version"]) == ("backend_unavailable", "embed")


def test_an_admin_client_gets_a_reply_without_access_and_nothing_over_the_limit():
    assert refusal_reply(TooManyConnectionsError()) == b""
    reply = json.loads(refusal_reply(PermissionDeniedError(7, "admin.sock")))
    assert (reply["id"], reply["type"], reply["ok"]) == ("admin", "reply", False)
    assert reply["error"] == "uid 7 may not use admin.sock"


async def test_a_refused_client_may_have_left_or_sent_a_request_already(
    acceptor, autojump_clock
):
    async with open_pair() as (gone, theirs):
        await theirs.aclose()
        await serve_one(acceptor, gone, make_spec(max_connections=0))
    async with open_pair() as (eager, theirs):
        await theirs.send_all(generate("early"))
        await serve_one(acceptor, eager, make_spec(max_connections=0))
        [frame] = await FrameClient(theirs).rest()
    assert frame["id"] == ""


async def test_a_refused_client_may_write_before_its_connection_is_closed(
    acceptor, nursery, autojump_clock
):
    async with open_pair() as (ours, theirs):
        acceptor.handle(bare(ours), make_spec(max_connections=0), nursery)
        for _ in range(3):
            await settled()
            await theirs.send_all(b"{}\n")
        await theirs.send_eof()
        await settled()
        assert ours.socket.fileno() == -1
    assert trio.current_time() == 0


async def test_a_refused_client_is_not_waited_for_for_long(acceptor, autojump_clock):
    async with open_pair() as (ours, _):
        fill_pipe(ours)
        await serve_one(acceptor, ours, make_spec(max_connections=0))
    assert trio.current_time() == LINGER_S


async def test_few_of_many_refused_clients_are_waited_for(
    acceptor, nursery, autojump_clock
):
    full = make_spec(max_connections=0)
    async with AsyncExitStack() as pairs:
        crowd = [await pairs.enter_async_context(open_pair()) for _ in range(20)]
        for ours, _ in crowd:
            acceptor.handle(bare(ours), full, nursery)
        n_open = sum(ours.socket.fileno() >= 0 for ours, _ in crowd)
        assert n_open == MAX_LINGERING
        await trio.sleep(2 * LINGER_S)
        ours, _ = await pairs.enter_async_context(open_pair())
        acceptor.handle(bare(ours), full, nursery)
        assert ours.socket.fileno() >= 0
        await trio.sleep(2 * LINGER_S)


async def test_without_a_reserve_descriptor_no_refused_client_is_waited_for(
    acceptor, nursery
):
    acceptor.close()
    async with open_pair() as (ours, theirs):
        acceptor.handle(bare(ours), make_spec(max_connections=0), nursery)
        assert ours.socket.fileno() == -1
        [frame] = await FrameClient(theirs).rest()
    assert frame["code"] == "queue_full"


async def test_a_crash_is_logged_and_releases_the_lease(acceptor):
    crashing = make_spec(crash)
    with capture_logs() as log:
        for _ in range(2):
            async with open_pair() as (ours, theirs):
                await serve_one(acceptor, ours, crashing)
                assert await FrameClient(theirs).rest() == []
    assert [line["event"] for line in log] == ["client.crashed"] * 2


async def test_a_cancelled_connection_releases_its_lease(nursery, acceptor):
    staying = make_spec(stay)
    async with open_pair() as (ours, _):
        with trio.CancelScope() as scope:
            nursery.start_soon(_cancel, scope)
            await serve_one(acceptor, ours, staying)
    assert staying.connection_limit.n_held == 0


async def _cancel(scope: trio.CancelScope) -> None:
    await settled()
    scope.cancel()


async def test_many_refusals_are_logged_now_and_then(acceptor, autojump_clock):
    full = make_spec(max_connections=0)
    with capture_logs() as log:
        for _ in range(100):
            await refused(acceptor, full)
        await trio.sleep(REFUSAL_LOG_INTERVAL_S)
        await refused(acceptor, full)
    assert [line["times"] for line in log] == [1, 100]
    assert f"{FULL} 101.0" in acceptor._metrics.text()


# --- many at once -----------------------------------------------------------------------


@pytest.fixture
async def flooded(short_dir):
    """A listener with 40 clients in its backlog."""
    listener = bind(short_dir / "s", mode=ADMIN_MODE)
    async with listener, AsyncExitStack() as clients:
        for _ in range(40):
            await clients.enter_async_context(await connect(short_dir))
        yield listener


async def test_accepting_takes_more_time_at_the_beginning_of_a_flood(
    flooded, nursery, autojump_clock, monkeypatch
):
    monkeypatch.setattr(f"{BUDGET}.ACCEPT_BURST_S", 2.2 * ACCEPT_BURST_PASS_S)
    clock = itertools.count(0.0, 0.6 * ACCEPT_PASS_S)  # each look is a connection later
    acceptor = Acceptor(Metrics(), idle_scheduler(), clock.__next__)
    spec = make_spec(stay, 100)
    n_held = [0]
    for _ in range(5):
        acceptor._accept_batch(flooded, spec, nursery)
        n_held.append(spec.connection_limit.n_held)
    await trio.sleep(ACCEPT_BURST_INTERVAL_S)
    acceptor._accept_batch(flooded, spec, nursery)
    n_held.append(spec.connection_limit.n_held)
    assert [after - before for before, after in pairwise(n_held)] == [4, 4, 3, 2, 2, 4]
    nursery.cancel_scope.cancel()


async def test_few_of_many_connections_begin_in_one_pass(autojump_clock):
    clock = Clock()
    loop = LoopScheduler(clock)
    acceptor = Acceptor(Metrics(), loop)
    n_begun = n_max = 0

    async def begin(_: trio.SocketStream) -> None:
        nonlocal n_begun
        n_begun += 1
        clock.now += 2 * LOOP_PASS_S
        await trio.sleep_forever()

    spec = make_spec(begin, 100)
    async with AsyncExitStack() as pairs, trio.open_nursery() as nursery:
        with loop.measuring():
            nursery.start_soon(loop.run)
            for _ in range(40):
                ours, _ = await pairs.enter_async_context(open_pair())
                acceptor.handle(bare(ours), spec, nursery)
            while n_begun < 40:
                n_before = n_begun
                await trio.lowlevel.checkpoint()
                n_max = max(n_max, n_begun - n_before)
            nursery.cancel_scope.cancel()
    assert n_max <= 2  # one pass may be seen as two halves
    assert spec.connection_limit.n_held == 0


async def test_connections_that_are_cancelled_before_they_begin_leave_nothing(
    autojump_clock,
):
    clock = Clock()
    loop = LoopScheduler(clock)
    acceptor = Acceptor(Metrics(), loop)

    async def begin(_: trio.SocketStream) -> None:
        clock.now += 2 * LOOP_PASS_S
        await trio.sleep_forever()

    spec = make_spec(begin, 100)
    async with AsyncExitStack() as pairs:
        crowd = [await pairs.enter_async_context(open_pair()) for _ in range(20)]
        async with trio.open_nursery() as nursery:
            with loop.measuring():
                nursery.start_soon(loop.run)
                for ours, _ in crowd:
                    acceptor.handle(bare(ours), spec, nursery)
                for _ in range(3):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        acceptor.close()
        assert spec.connection_limit.n_held == 0
        assert [ours.socket.fileno() for ours, _ in crowd] == [-1] * 20


# --- short of descriptors ---------------------------------------------------------------


class ShortListener:
    """A listener whose ``accept`` fails for want of descriptors, while ``is_short``."""

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
async def short_of_descriptors(acceptor, directory, nursery, make_spec):
    """Accept on a socket while no descriptors are available."""
    listener = ShortListener(bind(directory / "s", mode=ADMIN_MODE))
    scope = trio.CancelScope()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inferd.server.listen.acceptor.accept", listener.accept)
        nursery.start_soon(acceptor.accept_all, listener, make_spec, nursery, scope)
        yield listener
        nursery.cancel_scope.cancel()


async def connect(directory) -> FrameClient:
    return FrameClient(await trio.open_unix_socket(directory / "s"))


@pytest.mark.parametrize("number", RESOURCE_ERRNOS)
async def test_without_descriptors_clients_are_refused(
    number, acceptor, short_dir, nursery
):
    async with short_of_descriptors(
        acceptor, short_dir, nursery, make_spec(echo, 100)
    ) as listener:
        listener.error = number
        with capture_logs() as log:
            for _ in range(20):
                async with await connect(short_dir) as client:
                    [frame] = await client.rest()
                    assert frame["code"] == "queue_full"
    assert [line["event"] for line in log] == ["descriptors.short", "client.refused"]


async def test_an_operator_is_served_with_the_reserve_descriptor(
    acceptor, short_dir, nursery
):
    admin = make_spec(echo, 100, may_use_reserve_fd=True)
    async with short_of_descriptors(acceptor, short_dir, nursery, admin):
        for _ in range(3):
            async with await connect(short_dir) as client:
                await client.send(b"{}\n")
                assert await client.frame() == {}
            await settled()


async def test_without_the_reserve_descriptor_accepting_is_retried_now_and_then(
    acceptor, short_dir, nursery, autojump_clock
):
    acceptor.close()
    async with short_of_descriptors(
        acceptor, short_dir, nursery, make_spec(echo, 100)
    ) as listener:
        async with await connect(short_dir) as client:
            await trio.sleep(10.5 * ACCEPT_RETRY_S)
            assert listener.n_tries == 11
            listener.is_short = False
            await client.send(b"{}\n")
            assert await client.frame() == {}


async def test_any_other_failure_is_a_bug(acceptor, short_dir, monkeypatch):
    listener = ShortListener(bind(short_dir / "s", mode=ADMIN_MODE))
    listener.error = errno.EBADF
    monkeypatch.setattr("inferd.server.listen.acceptor.accept", listener.accept)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{short_dir}/s")
        with pytest.RaisesGroup(OSError, flatten_subgroups=True):
            async with trio.open_nursery() as nursery:
                await acceptor.accept_all(
                    listener, make_spec(), nursery, trio.CancelScope()
                )
