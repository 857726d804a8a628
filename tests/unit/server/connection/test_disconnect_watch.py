from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from inferd.server.connection.disconnect_watch import DisconnectWatch
from tests.fakes.streams import open_pair, unix_pair


@asynccontextmanager
async def watching() -> AsyncIterator[DisconnectWatch]:
    disconnects = DisconnectWatch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disconnects.run)
        yield disconnects
        nursery.cancel_scope.cancel()


async def hung_up(disconnects: DisconnectWatch, stream: trio.SocketStream) -> bool:
    with trio.move_on_after(1) as scope:
        await disconnects.wait(stream)
    return not scope.cancelled_caught


async def test_a_peer_that_closed_is_disconnected(autojump_clock):
    async with watching() as disconnects, open_pair() as (ours, theirs):
        await theirs.aclose()
        assert await hung_up(disconnects, ours)
    assert trio.current_time() == 0


async def test_a_peer_that_closes_meanwhile_is_noticed_at_once(autojump_clock, nursery):
    async with watching() as disconnects, open_pair() as (ours, theirs):

        async def leave():
            await trio.sleep(0.5)
            await theirs.aclose()

        nursery.start_soon(leave)
        assert await hung_up(disconnects, ours)
    assert trio.current_time() == 0.5


async def test_a_half_closed_peer_is_not_disconnected(autojump_clock):
    async with watching() as disconnects, open_pair() as (ours, theirs):
        await theirs.send_eof()
        assert not await hung_up(disconnects, ours)


async def test_a_peer_that_sends_is_not_disconnected(autojump_clock):
    async with watching() as disconnects, open_pair() as (ours, theirs):
        await theirs.send_all(b"unread")
        assert not await hung_up(disconnects, ours)


@pytest.mark.parametrize("ends_its_side", [True, False])
async def test_unread_bytes_do_not_hide_a_peer_that_closed(
    ends_its_side, autojump_clock
):
    async with watching() as disconnects, open_pair() as (ours, theirs):
        await theirs.send_all(b"unread")
        if ends_its_side:
            await theirs.send_eof()
        await theirs.aclose()
        assert await hung_up(disconnects, ours)
        assert bytes(await ours.receive_some(100)) == b"unread"


async def test_a_full_buffer_does_not_hide_a_peer_that_closed(autojump_clock):
    async with watching() as disconnects, open_pair() as (ours, theirs):
        with trio.move_on_after(1):
            await ours.send_all(b"x" * 10_000_000)
        await theirs.aclose()
        assert await hung_up(disconnects, ours)


async def test_peers_are_watched_separately(autojump_clock):
    async with watching() as disconnects:
        async with open_pair() as (a, a_peer), open_pair() as (b, _):
            await a_peer.aclose()
            assert await hung_up(disconnects, a)
            assert not await hung_up(disconnects, b)


async def test_many_peers_may_disconnect_at_once(autojump_clock, nursery):
    gone: list[int] = []

    async def wait(number: int, stream: trio.SocketStream):
        await disconnects.wait(stream)
        gone.append(number)

    async with watching() as disconnects:
        pairs = [unix_pair() for _ in range(50)]
        for number, (ours, _) in enumerate(pairs):
            nursery.start_soon(wait, number, ours)
        await trio.testing.wait_all_tasks_blocked()
        for _, theirs in pairs:
            await theirs.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(gone) == list(range(50))
        for ours, _ in pairs:
            await ours.aclose()


async def test_a_wait_may_be_cancelled_and_begun_again(autojump_clock):
    async with watching() as disconnects, open_pair() as (ours, theirs):
        assert not await hung_up(disconnects, ours)
        assert not await hung_up(disconnects, ours)
        await theirs.aclose()
        assert await hung_up(disconnects, ours)


async def test_a_descriptor_used_again_is_another_peer(autojump_clock):
    async with watching() as disconnects:
        for _ in range(3):
            async with open_pair() as (ours, theirs):
                assert not await hung_up(disconnects, ours)
                await theirs.aclose()
                assert await hung_up(disconnects, ours)


async def test_disconnected_peers_do_not_keep_the_loop_busy(autojump_clock):
    async with watching() as disconnects, open_pair() as (ours, theirs):
        await theirs.aclose()
        assert await hung_up(disconnects, ours)
        await trio.sleep(10)  # jumps only when nothing is left to do


async def test_waiters_survive_the_end_of_the_watch():
    disconnects = DisconnectWatch()
    ends: list[bool] = []

    async def wait(stream: trio.SocketStream):
        with trio.CancelScope() as scope:
            await disconnects.wait(stream)
        ends.append(scope.cancelled_caught)

    async with open_pair() as (ours, _), trio.open_nursery() as nursery:
        nursery.start_soon(wait, ours)
        async with trio.open_nursery() as watching:
            watching.start_soon(disconnects.run)
            await trio.testing.wait_all_tasks_blocked()
            watching.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert ends == []
        nursery.cancel_scope.cancel()
