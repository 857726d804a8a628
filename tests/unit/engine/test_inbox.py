import pytest
import trio
import trio.testing

from inferd.engine.inbox import Inbox
from inferd.ipc import Alive, Failed, PromptReady
from inferd.pipe import BrokenLinkError, encode
from tests.fakes.streams import open_pair

MESSAGES = (
    Alive(),
    PromptReady(ticket=1, prompt_tokens=7),
    Failed(ticket=1, reason="x" * 300),
)


def taken(inbox: Inbox) -> list[object]:
    """Take all messages that are there."""
    return list(iter(inbox.next_message, None))


async def test_messages_come_whole_and_in_order_however_they_are_cut():
    data = b"".join(encode(each) for each in MESSAGES)
    for n_bytes in (1, 5, len(data)):
        async with open_pair() as (ours, theirs):
            inbox, found = Inbox(ours), []
            for begin in range(0, len(data), n_bytes):
                await theirs.send_all(data[begin : begin + n_bytes])
                assert await inbox.read()
                found += taken(inbox)
            assert found == [*MESSAGES]


async def test_it_waits_until_something_comes(autojump_clock):
    async with open_pair() as (ours, theirs), trio.open_nursery() as nursery:
        inbox = Inbox(ours)

        async def speak():
            await trio.sleep(10)
            await theirs.send_all(encode(Alive()))

        nursery.start_soon(speak)
        assert await inbox.read()
        assert (taken(inbox), trio.current_time() >= 10) == ([Alive()], True)


async def test_a_closed_pipe_ends_it():
    async with open_pair() as (ours, theirs):
        inbox = Inbox(ours)
        await theirs.send_all(encode(Alive()))
        await theirs.aclose()
        assert (await inbox.read(), taken(inbox)) == (True, [Alive()])
        assert not await inbox.read()


async def test_a_pipe_that_was_closed_with_words_unread_ends_it():
    async with open_pair() as (ours, theirs):
        await ours.send_all(b"nobody reads this")
        await theirs.aclose()
        assert not await Inbox(ours).read()


async def test_waiting_can_be_given_up_and_taken_up_again():
    async with open_pair() as (ours, theirs):
        inbox = Inbox(ours)
        with trio.CancelScope() as scope:
            scope.cancel()
            await inbox.read()
        await theirs.send_all(encode(Alive()))
        assert await inbox.read()
        assert taken(inbox) == [Alive()]


async def test_what_is_no_message_is_an_error():
    async with open_pair() as (ours, theirs):
        inbox = Inbox(ours)
        await theirs.send_all(b"\xff" * 8)
        await inbox.read()
        with pytest.raises(BrokenLinkError):
            inbox.next_message()
