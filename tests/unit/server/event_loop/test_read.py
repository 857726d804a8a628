import trio
import trio.testing

from inferd.server.event_loop.read import read_in_turn
from inferd.server.event_loop.scheduler import LoopScheduler
from inferd.server.fd_passing.quota import FdQuota
from inferd.server.fd_passing.receive import FdsByLine
from tests.fakes.streams import open_pair


async def test_it_waits_for_bytes_with_or_without_descriptors(nursery, autojump_clock):
    for fds_by_line in (None, FdsByLine(FdQuota(10), 1)):
        async with open_pair() as (ours, theirs):
            with trio.move_on_after(1) as scope:
                await read_in_turn(ours, fds_by_line, LoopScheduler())
            assert scope.cancelled_caught
            await theirs.send_all(b"hello")
            assert await read_in_turn(ours, fds_by_line, LoopScheduler()) == b"hello"
            await theirs.send_eof()
            assert await read_in_turn(ours, fds_by_line, LoopScheduler()) == b""


async def test_a_broken_connection_reads_as_eof():
    async with open_pair() as (ours, theirs):
        await ours.send_all(b"unread")
        await theirs.aclose()
        assert await read_in_turn(ours, None, LoopScheduler()) == b""
