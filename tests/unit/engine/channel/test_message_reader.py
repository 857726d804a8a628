import pytest
import trio
import trio.testing

from inferd.engine.channel.transport import MessageReader
from inferd.ipc.encoding import MalformedMessageError, encode
from inferd.ipc.worker import Failed, Heartbeat, PromptReady
from tests.fakes.streams import open_pair

MESSAGES = (
    Heartbeat(),
    PromptReady(ticket=1, prompt_tokens=7),
    Failed(ticket=1, reason="x" * 300),
)


def taken(reader: MessageReader) -> list[object]:
    """Take all messages that are there."""
    return list(iter(reader.next_message, None))


async def test_messages_are_complete_and_in_order_for_any_chunking():
    data = b"".join(encode(each) for each in MESSAGES)
    for n_bytes in (1, 5, len(data)):
        async with open_pair() as (ours, theirs):
            reader, found = MessageReader(ours), []
            for begin in range(0, len(data), n_bytes):
                await theirs.send_all(data[begin : begin + n_bytes])
                assert await reader.read()
                found += taken(reader)
            assert found == [*MESSAGES]


async def test_it_waits_until_something_comes(autojump_clock):
    async with open_pair() as (ours, theirs), trio.open_nursery() as nursery:
        reader = MessageReader(ours)

        async def speak():
            await trio.sleep(10)
            await theirs.send_all(encode(Heartbeat()))

        nursery.start_soon(speak)
        assert await reader.read()
        assert (taken(reader), trio.current_time() >= 10) == ([Heartbeat()], True)


async def test_a_closed_socket_ends_reading():
    async with open_pair() as (ours, theirs):
        reader = MessageReader(ours)
        await theirs.send_all(encode(Heartbeat()))
        await theirs.aclose()
        assert (await reader.read(), taken(reader)) == (True, [Heartbeat()])
        assert not await reader.read()


async def test_a_socket_closed_with_unread_bytes_ends_reading():
    async with open_pair() as (ours, theirs):
        await ours.send_all(b"nobody reads this")
        await theirs.aclose()
        assert not await MessageReader(ours).read()


async def test_reading_can_be_cancelled_and_repeated():
    async with open_pair() as (ours, theirs):
        reader = MessageReader(ours)
        with trio.CancelScope() as scope:
            scope.cancel()
            await reader.read()
        await theirs.send_all(encode(Heartbeat()))
        assert await reader.read()
        assert taken(reader) == [Heartbeat()]


async def test_malformed_bytes_are_an_error():
    async with open_pair() as (ours, theirs):
        reader = MessageReader(ours)
        await theirs.send_all(b"\xff" * 8)
        await reader.read()
        with pytest.raises(MalformedMessageError):
            reader.next_message()
