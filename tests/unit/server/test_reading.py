import trio
import trio.testing

from inferd.server.custody import Custody
from inferd.server.loop import Loop
from inferd.server.parcels import Parcels
from inferd.server.reading import read_in_turn
from tests.fakes.streams import open_pair


async def test_it_waits_for_bytes_with_or_without_descriptors(nursery, autojump_clock):
    for parcels in (None, Parcels(Custody(10), 1)):
        async with open_pair() as (ours, theirs):
            with trio.move_on_after(1) as scope:
                await read_in_turn(ours, parcels, Loop())
            assert scope.cancelled_caught
            await theirs.send_all(b"hello")
            assert await read_in_turn(ours, parcels, Loop()) == b"hello"
            await theirs.send_eof()
            assert await read_in_turn(ours, parcels, Loop()) == b""


async def test_of_one_who_is_gone_there_is_the_end():
    async with open_pair() as (ours, theirs):
        await ours.send_all(b"unread")
        await theirs.aclose()
        assert await read_in_turn(ours, None, Loop()) == b""
