from contextlib import aclosing, asynccontextmanager

import pytest
import trio
import trio.testing

from inferd.client.asynchronous import AsyncFrameClient
from inferd.client.exchange import ClientError, ConnectionLostError
from inferd.client.frames import ClientBlocksDone, ClientDoneFrame
from inferd.wire.blocks import AudioAttachment, AudioBlock, BlocksRequest, Message
from inferd.wire.requests import ChatMessage, GenerateRequest
from tests.fakes.listener import done, token
from tests.fakes.streams import to_line

LARGE = bytes(8_000_000)
"""Samples for which no socket has room."""


USAGE = {"input_tokens": 0, "output_tokens": 0, "cached_tokens": 0}


@asynccontextmanager
async def listening(path, *dialogues):
    """Serve connections one after another, each by its dialogue."""
    sock = trio.socket.socket(trio.socket.AF_UNIX)
    await sock.bind(str(path))
    sock.listen()

    async def follow():
        with sock, trio.fail_after(90):
            for dialogue in dialogues:
                connection, _ = await sock.accept()
                with connection:
                    await dialogue(trio.SocketStream(connection))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        yield


def request():
    return GenerateRequest(id="r", messages=[ChatMessage("user", "hello")])


def spoken():
    return BlocksRequest(
        id="r",
        messages=[Message("user", [AudioBlock("a")])],
        attachments=[AudioAttachment(id="a", sample_rate=16_000, open=True)],
    )


async def begins(stream):
    """Begin an answer, and see that it is given up."""
    await stream.receive_some()
    await stream.send_all(to_line(token("a")))
    with pytest.raises((trio.BrokenResourceError, StopAsyncIteration)):
        while True:
            await anext(stream)


async def answers(stream):
    await stream.receive_some()
    await stream.send_all(to_line(done("b")))


async def breaks(stream):
    await stream.receive_some()
    await stream.send_all(to_line(token("a")))


async def cancelled(client):
    with trio.move_on_after(1) as scope:
        [frame async for frame in client.generate(request())]
    assert scope.cancelled_caught


async def left_early(client):
    async with aclosing(client.generate(request())) as answer:
        await anext(answer)


async def lost(client):
    with pytest.raises(ConnectionLostError):
        [frame async for frame in client.generate(request())]


async def lost_conversation(client):
    with pytest.raises(ConnectionLostError):
        [frame async for frame in client.converse(spoken())]


@pytest.mark.parametrize(
    ("interrupt", "dialogue"),
    [(cancelled, begins), (left_early, begins), (lost, breaks)],
)
async def test_after_an_answer_that_was_interrupted_the_next_is_had_anew(
    short_dir, autojump_clock, interrupt, dialogue
):
    async with listening(short_dir / "infer.sock", dialogue, answers):
        async with AsyncFrameClient(short_dir) as client:
            await interrupt(client)
            [frame] = [each async for each in client.generate(request())]
    assert isinstance(frame, ClientDoneFrame)
    assert frame.content == "b"


async def test_a_line_that_is_cut_short_ends_its_request_and_is_followed_by_nothing(
    short_dir, autojump_clock
):
    heard = bytearray()
    is_cut = trio.Event()

    async def hear_late(stream):
        await stream.receive_some()
        await stream.send_all(
            to_line({"type": "status", "id": "r", "status": "queued"})
        )
        await is_cut.wait()
        async for data in stream:
            heard.extend(data)

    async def read(client, *, task_status):
        answer = client.converse(spoken())
        await anext(answer)
        task_status.started()
        with pytest.raises(ConnectionLostError):
            await anext(answer)

    async with listening(short_dir / "infer.v2.sock", hear_late):
        async with (
            AsyncFrameClient(short_dir) as client,
            trio.open_nursery() as nursery,
        ):
            await nursery.start(read, client)
            with trio.move_on_after(1) as scope:
                await client.append("r", LARGE)
            assert scope.cancelled_caught
            assert not await client.append("r", b"\0" * 4)
            assert not await client.cancel("r")
            is_cut.set()
    assert heard.startswith(b'{"type":"append"')
    assert not heard.endswith(b"\n")


async def test_a_closed_client_refuses_requests(short_dir, autojump_clock):
    async with listening(short_dir / "infer.sock", begins):
        client = AsyncFrameClient(short_dir)
        answer = client.generate(request())
        await anext(answer)
        client.close()
        with pytest.raises(ConnectionLostError):
            await anext(answer)
        with pytest.raises(ClientError, match="the client is closed"):
            await anext(client.generate(request()))
        assert not await client.cancel("r")
        client.close()


async def test_after_an_append_that_was_cut_short_the_next_request_is_served(
    short_dir, autojump_clock
):
    async def stop_reading(stream):
        await stream.receive_some()
        await trio.sleep(5)

    async def answer(stream):
        await stream.receive_some()
        await stream.send_all(
            to_line(
                {"type": "done", "id": "r", "usage": USAGE, "stop_reason": "end"}
                | {"backend": "m"}
            )
        )

    async with listening(short_dir / "infer.v2.sock", stop_reading, answer):
        async with (
            AsyncFrameClient(short_dir) as client,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(lost_conversation, client)
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(1) as scope:
                await client.append("r", LARGE)
            assert scope.cancelled_caught
            await trio.testing.wait_all_tasks_blocked()
            [frame] = [each async for each in client.converse(spoken())]
    assert isinstance(frame, ClientBlocksDone)


async def test_after_a_request_that_was_cut_short_the_next_one_is_served(
    short_dir, autojump_clock
):
    async def read_nothing(stream):
        await trio.sleep(5)

    async with listening(short_dir / "infer.sock", read_nothing, answers):
        async with AsyncFrameClient(short_dir) as client:
            large = GenerateRequest(id="r", messages=[ChatMessage("user", "x" * 10**7)])
            with trio.move_on_after(1) as scope:
                [each async for each in client.generate(large)]
            assert scope.cancelled_caught
            [frame] = [each async for each in client.generate(request())]
    assert isinstance(frame, ClientDoneFrame)


async def test_a_closed_client_appends_nothing(short_dir, autojump_clock):
    client = AsyncFrameClient(short_dir)
    client.close()
    assert not await client.append("r", b"\0" * 4)
    with pytest.raises(ClientError, match="the client is closed"):
        await anext(client.converse(spoken()))
