"""The messages of a worker on trio."""

import socket

import trio
from trio.testing import assert_no_checkpoints, wait_all_tasks_blocked

from inferd.ipc.encoding import encode
from inferd.ipc.worker import Step
from inferd.worker.channel import MessageQueue
from inferd.worker.remote.channel import AsyncChannel

SMALL = Step(pieces=[(1, b"a")])
LARGE = Step(pieces=[(2, bytes(2**20))])


async def test_messages_are_sent_at_once_and_wait_whole_and_in_order_for_a_slow_daemon():
    ours, daemon = socket.socketpair()
    with ours, daemon:
        for each in (ours, daemon):
            each.setblocking(False)
        channel = AsyncChannel(ours, MessageQueue())
        with assert_no_checkpoints():
            await channel.send(SMALL)
        sent = encode(SMALL)
        assert daemon.recv(100) == sent
        wanted = encode(LARGE) + sent
        received = bytearray()

        async def read() -> None:
            while len(received) < len(wanted):
                await trio.lowlevel.wait_readable(daemon)
                received.extend(daemon.recv(2**16))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.send, LARGE)
            await wait_all_tasks_blocked()
            received.extend(
                daemon.recv(2**16)
            )  # there is room, before the rest of the first
            nursery.start_soon(read)
            await channel.send(SMALL)
        assert received == wanted
