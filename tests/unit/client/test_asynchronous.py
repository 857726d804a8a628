import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from inferd.client.asynchronous import (
    AsyncFrameClient,
    command,
    connect,
    watch_status,
)
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import (
    ClientError,
    ConnectionLostError,
    ProtocolError,
    RequestFailedError,
    embeddings_of,
)
from inferd.client.frames import ClientBlocksDone
from inferd.client.memfd import Memfd
from inferd.errors import ErrorCode
from inferd.wire.blocks import (
    AudioAttachment,
    AudioBlock,
    BlocksRequest,
    Message,
    TextBlock,
)
from inferd.wire.commands import Command
from inferd.wire.framing import LineSplitter
from inferd.wire.requests import (
    ChatMessage,
    EmbedRequest,
    GenerateRequest,
    RerankRequest,
)
from inferd.wire.responses import RankedDocument, TokenFrame
from tests.fakes.hearing import heard, receive, segment
from tests.fakes.listener import done, failure, full_backlog, status, token
from tests.fakes.streams import Frame, to_line

Dialogue = Callable[[trio.SocketStream], Awaitable[None]]


def request(request_id: str = "r") -> GenerateRequest:
    return GenerateRequest(id=request_id, messages=[ChatMessage("user", "hello")])


@asynccontextmanager
async def listening(path: Path, dialogue: Dialogue) -> AsyncIterator[None]:
    """Follow a dialogue on each connection; it is closed afterwards."""
    sock = trio.socket.socket(trio.socket.AF_UNIX)
    await sock.bind(str(path))
    sock.listen()
    async with trio.open_nursery() as nursery:
        listeners = [trio.SocketListener(sock)]
        nursery.start_soon(trio.serve_listeners, dialogue, listeners)
        yield
        nursery.cancel_scope.cancel()


def answers(*exchanges: list[Frame]) -> Dialogue:
    async def follow(stream: trio.SocketStream) -> None:
        for frames in exchanges:
            if await stream.receive_some(100_000):
                await stream.send_all(b"".join(map(to_line, frames)))

    return follow


def says(*frames: Frame) -> Dialogue:
    async def follow(stream: trio.SocketStream) -> None:
        await stream.send_all(b"".join(map(to_line, frames)))

    return follow


async def contents(client, asked: GenerateRequest) -> list[str]:
    return [frame.content async for frame in client.generate(asked)]


def infer(directory: Path) -> Path:
    return directory / "infer.sock"


# --- requests ---------------------------------------------------------------------------


async def test_an_answer_is_its_frames_with_done_last(short_dir, autojump_clock):
    answer = [token("Hel"), token("lo"), done("Hello")]
    async with listening(infer(short_dir), answers(answer)):
        async with AsyncFrameClient(short_dir) as client:
            assert await contents(client, request()) == ["Hel", "lo", "Hello"]


async def test_a_connection_serves_one_request_after_another(short_dir, autojump_clock):
    dialogue = answers([done("a", "first")], [done("b", "second")])
    async with listening(infer(short_dir), dialogue):
        async with AsyncFrameClient(short_dir) as client:
            assert await contents(client, request("first")) == ["a"]
            assert await contents(client, request("second")) == ["b"]


async def test_an_error_frame_is_raised_behind_the_frames_before_it(
    short_dir, autojump_clock
):
    answer = [token("Hel"), failure("queue_full")]
    async with listening(infer(short_dir), answers(answer)):
        async with AsyncFrameClient(short_dir) as client:
            frames = client.generate(request())
            assert isinstance(await anext(frames), TokenFrame)
            with pytest.raises(RequestFailedError) as caught:
                await anext(frames)
    assert caught.value.code == ErrorCode.QUEUE_FULL


async def test_a_daemon_that_closes_in_mid_answer_lost_the_connection(
    short_dir, autojump_clock
):
    async with listening(infer(short_dir), answers([token("a")])):
        async with AsyncFrameClient(short_dir) as client:
            with pytest.raises(ConnectionLostError):
                await contents(client, request())


async def test_a_daemon_that_resets_the_connection_lost_it(short_dir, autojump_clock):
    async def leave(stream: trio.SocketStream) -> None:
        await stream.receive_some(1)  # the rest is not read, so closing resets

    async with (
        listening(infer(short_dir), leave),
        AsyncFrameClient(short_dir) as client,
    ):
        with pytest.raises(ConnectionLostError):
            await contents(client, request())


async def test_a_daemon_that_closes_between_requests_lost_the_connection(
    short_dir, autojump_clock
):
    async with listening(infer(short_dir), answers([done("a")])):
        async with AsyncFrameClient(short_dir) as client:
            assert await contents(client, request()) == ["a"]
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(ConnectionLostError):
                await contents(client, request())


async def test_frames_before_the_daemon_closes_are_read(short_dir, autojump_clock):
    refusal = says(failure("queue_full", request_id=""))
    async with (
        listening(infer(short_dir), refusal),
        AsyncFrameClient(short_dir) as client,
    ):
        with pytest.raises(RequestFailedError) as caught:
            await contents(client, request())
    assert caught.value.code == ErrorCode.QUEUE_FULL


async def test_a_frame_for_another_request_is_refused(short_dir, autojump_clock):
    async with listening(infer(short_dir), answers([done("a", "not ours")])):
        async with AsyncFrameClient(short_dir) as client:
            with pytest.raises(ProtocolError, match="not ours"):
                await contents(client, request())


async def test_leaving_closes_every_connection(short_dir, autojump_clock):
    seen: list[bytes] = []

    def listen(*frames: Frame) -> Dialogue:
        async def follow(stream: trio.SocketStream) -> None:
            await answers(list(frames))(stream)
            seen.append(bytes(await stream.receive_some(100)))

        return follow

    async with (
        listening(infer(short_dir), listen(done("a"))),
        listening(short_dir / "infer.embed.sock", listen(EMBEDDINGS)),
    ):
        async with AsyncFrameClient(short_dir) as client:
            await contents(client, request())
            await client.embed(TEXTS)
        await trio.testing.wait_all_tasks_blocked()
    assert seen == [b"", b""]


# --- the other sockets ------------------------------------------------------------------

TEXTS = EmbedRequest(id="r", input=["a", "b"])
ENCODED = {"id": "r", "model": "m", "usage": {"input_tokens": 1}, "backend": "b"}
EMBEDDINGS = {
    **ENCODED,
    "type": "embeddings",
    "embeddings": [[1, 0.5], [0, 2]],
    "dimensions": 2,
}


async def test_a_conversation_is_answered_in_blocks(short_dir, autojump_clock):
    delta = {"type": "frame", "id": "r", "block": {"type": "text", "delta": "a"}}
    usage = {"input_tokens": 1, "output_tokens": 1}
    end = done("", usage=usage, stop_reason="end_turn")
    asked = BlocksRequest(id="r", messages=[Message("user", [TextBlock("hello")])])
    async with listening(short_dir / "infer.v2.sock", answers([delta, end])):
        async with AsyncFrameClient(short_dir) as client:
            frames = [type(each).__name__ async for each in client.converse(asked)]
    assert frames == ["BlockFrame", "ClientBlocksDone"]


async def test_texts_become_embeddings_which_can_be_read(short_dir, autojump_clock):
    async with listening(short_dir / "infer.embed.sock", answers([EMBEDDINGS])):
        async with AsyncFrameClient(short_dir) as client:
            frame = await client.embed(TEXTS)
    assert embeddings_of(frame) == [[1.0, 0.5], [0.0, 2.0]]


async def test_documents_are_ranked(short_dir, autojump_clock):
    ranked = ENCODED | {"type": "rerank", "results": [{"index": 1, "score": 3}]}
    asked = RerankRequest(id="r", query="q", documents=["a", "b"])
    async with listening(short_dir / "infer.rerank.sock", answers([ranked])):
        async with AsyncFrameClient(short_dir) as client:
            frame = await client.rerank(asked)
    assert frame.results == [RankedDocument(1, 3.0)]


# --- cancelling -------------------------------------------------------------------------


async def test_another_task_may_cancel_what_one_waits_for(
    short_dir, autojump_clock, nursery
):
    heard: list[Frame] = []

    async def end_when_told(stream: trio.SocketStream) -> None:
        await stream.receive_some(100_000)
        heard.append(json.loads(await stream.receive_some(100_000)))
        await says(failure("cancelled"))(stream)

    async def cancel() -> None:
        await trio.testing.wait_all_tasks_blocked()
        assert not await client.cancel("another")
        assert await client.cancel("r")

    async with listening(short_dir / "infer.embed.sock", end_when_told):
        async with AsyncFrameClient(short_dir) as client:
            nursery.start_soon(cancel)
            with pytest.raises(RequestFailedError, match="cancelled: "):
                await client.embed(TEXTS)
    assert heard == [{"type": "cancel", "id": "r"}]


async def test_a_cancel_waits_until_the_request_is_sent(
    short_dir, autojump_clock, nursery
):
    heard = bytearray()

    async def read_late(stream: trio.SocketStream) -> None:
        await trio.sleep(10)
        while heard.count(b"\n") < 2:
            heard.extend(await stream.receive_some(100_000))
        await says(done("", stop_reason="cancelled"))(stream)

    async def cancel() -> None:
        await trio.sleep(5)
        assert await client.cancel("r")

    long = GenerateRequest(id="r", messages=[ChatMessage("user", "x" * 1_000_000)])
    async with listening(infer(short_dir), read_late):
        async with AsyncFrameClient(short_dir) as client:
            nursery.start_soon(cancel)
            assert await contents(client, long) == [""]
    assert heard.splitlines()[1] == b'{"type":"cancel","id":"r"}'


# --- media ------------------------------------------------------------------------------

BLOCK = bytes(64_000)


def spoken(**fields):
    return BlocksRequest(
        id="r",
        messages=[Message("user", [AudioBlock("a")])],
        attachments=[AudioAttachment(id="a", sample_rate=16_000, **fields)],
    )


async def test_memory_is_passed_with_the_request(short_dir, autojump_clock):
    came: list[object] = []

    async def look(stream: trio.SocketStream) -> None:
        sock = socket.socket(fileno=os.dup(stream.socket.fileno()))
        await trio.testing.wait_all_tasks_blocked()  # the line is there
        came.extend(receive(sock)[1])
        sock.close()
        await says(heard())(stream)

    with Memfd() as memory:
        memory.write(BLOCK)
        async with listening(short_dir / "infer.v2.sock", look):
            async with AsyncFrameClient(short_dir) as client:
                frames = client.converse(spoken(fd=0), descriptors=[memory.fd])
                [last] = [frame async for frame in frames]
    assert came == [BLOCK]
    assert isinstance(last, ClientBlocksDone)


async def test_audio_is_appended_while_another_task_reads(
    short_dir, autojump_clock, nursery
):
    lines: list[Frame] = []

    async def listen(stream: trio.SocketStream) -> None:
        splitter = LineSplitter()
        while not lines or not lines[-1].get("end"):
            splitter.feed(await stream.receive_some(100_000))
            while (line := splitter.next_frame()) is not None:
                lines.append(json.loads(line))
        await says(segment("Hello", 0, 9), heard())(stream)

    async def speak() -> None:
        await trio.sleep(1)
        for _ in range(20):
            assert await client.append("r", BLOCK)
        assert await client.append("r", b"", is_last=True)

    async with listening(short_dir / "infer.v2.sock", listen):
        async with AsyncFrameClient(short_dir) as client:
            assert not await client.append("r", BLOCK)
            nursery.start_soon(speak)
            frames = [frame async for frame in client.converse(spoken(open=True))]
            assert not await client.append("r", BLOCK)
    assert [line.get("type") for line in lines] == [None, *["append"] * 21]
    assert len(frames) == 2


async def test_appending_waits_for_the_daemon_and_reading_goes_on(
    short_dir, autojump_clock, nursery
):
    async def hear_late(stream: trio.SocketStream) -> None:
        await says(*[segment("x" * 1000, 0, 9)] * 500)(stream)
        await trio.sleep(10)
        data = bytearray()
        while data.count(b"\n") < 22:
            data += await stream.receive_some(100_000)
        await says(heard())(stream)

    async def speak() -> None:
        await trio.sleep(1)
        for _ in range(20):
            await client.append("r", BLOCK)
        assert trio.current_time() >= started_at + 10
        await client.append("r", b"", is_last=True)

    async with listening(short_dir / "infer.v2.sock", hear_late):
        async with AsyncFrameClient(short_dir) as client:
            started_at = trio.current_time()
            nursery.start_soon(speak)
            frames = [frame async for frame in client.converse(spoken(open=True))]
    assert len(frames) == 501


async def test_audio_without_an_open_attachment_is_refused(
    short_dir, autojump_clock, nursery
):
    async def listen(stream: trio.SocketStream) -> None:
        await trio.sleep(5)
        await says(heard())(stream)

    async def speak() -> None:
        await trio.sleep(1)
        with pytest.raises(ClientError, match="open attachment"):
            await client.append("r", BLOCK)

    async with listening(short_dir / "infer.v2.sock", listen):
        async with AsyncFrameClient(short_dir) as client:
            nursery.start_soon(speak)
            async for _ in client.converse(spoken(bytes="")):
                pass


# --- connecting -------------------------------------------------------------------------


async def test_a_missing_daemon_is_reported_with_the_path(short_dir, autojump_clock):
    with pytest.raises(NoDaemonError, match=f"{infer(short_dir)} .No such file"):
        await connect("infer.sock", short_dir)


async def test_a_socket_without_a_listener_is_no_daemon(short_dir, autojump_clock):
    with trio.socket.socket(trio.socket.AF_UNIX) as left:
        await left.bind(str(infer(short_dir)))
    with pytest.raises(NoDaemonError, match="refused"):
        await connect("infer.sock", short_dir)


async def test_directories_are_tried_in_order(short_dir, monkeypatch, autojump_clock):
    first, second = short_dir / "first", short_dir / "second"
    for directory in (first, second):
        directory.mkdir()
    monkeypatch.setattr(
        "inferd.client.discovery.client_directories", lambda: [first, second]
    )
    async with listening(infer(second), answers([done("second")])):
        async with AsyncFrameClient() as client:
            assert await contents(client, request()) == ["second"]


async def test_a_full_backlog_is_waited_out(short_dir, autojump_clock, nursery):
    with full_backlog(infer(short_dir)) as listener:
        connected = trio.Event()

        async def come() -> None:
            async with await connect("infer.sock", short_dir) as stream:
                connected.set()
                await stream.send_all(b"here")

        nursery.start_soon(come)
        await trio.sleep(60)
        assert not connected.is_set()
        accepted = [listener.accept()[0]]
        await connected.wait()
        accepted.append(listener.accept()[0])
        assert accepted[-1].recv(10) == b"here"
        for sock in accepted:
            sock.close()
    assert trio.current_time() < 61


async def test_waiting_for_a_full_backlog_may_be_cancelled(short_dir, autojump_clock):
    with full_backlog(infer(short_dir)), trio.move_on_after(5) as scope:
        await connect("infer.sock", short_dir)
    assert scope.cancelled_caught


# --- the admin socket -------------------------------------------------------------------


async def test_statuses_are_yielded_until_the_end(short_dir, autojump_clock):
    words = ["starting", "loading_model", "ready", "draining"]
    async with listening(short_dir / "admin.sock", says(*map(status, words))):
        seen = [each.status async for each in watch_status(short_dir)]
    assert seen == words


async def test_the_reply_to_a_command_is_found_among_status_frames(
    short_dir, autojump_clock
):
    asked: list[Frame] = []
    reply = {"id": "admin", "type": "reply", "command": "drain", "ok": True}

    async def obey(stream: trio.SocketStream) -> None:
        await says(status("ready"))(stream)
        asked.append(json.loads(await stream.receive_some(100)))
        await says(status("draining"), reply)(stream)

    async with listening(short_dir / "admin.sock", obey):
        assert (await command(Command(command="drain"), short_dir)).ok
    assert asked == [{"command": "drain", "id": None}]


async def test_a_daemon_that_ends_before_its_reply_lost_the_connection(
    short_dir, autojump_clock
):
    async with listening(short_dir / "admin.sock", says(status("ready"))):
        with pytest.raises(ConnectionLostError):
            await command(Command(command="drain"), short_dir)


BLOCKS = BlocksRequest(id="r", messages=[Message("user", [TextBlock("hello")])])


async def every(answers: AsyncIterator[object]) -> list[object]:
    return [each async for each in answers]


@pytest.mark.parametrize(
    ("leaf", "ask"),
    [
        ("infer", lambda client, **model: every(client.generate(request(), **model))),
        ("infer.v2", lambda client, **model: every(client.converse(BLOCKS, **model))),
        (
            "infer.embed",
            lambda client, **model: client.embed(
                EmbedRequest(id="r", input=["a"]), **model
            ),
        ),
        (
            "infer.rerank",
            lambda client, **model: client.rerank(
                RerankRequest(id="r", query="q", documents=["a"]), **model
            ),
        ),
    ],
    ids=["generate", "converse", "embed", "rerank"],
)
async def test_a_model_is_named(short_dir, leaf, ask, autojump_clock):
    asked: list[str | None] = []

    async def listen(stream: trio.SocketStream) -> None:
        async for data in stream:
            asked.append(json.loads(data)["model"])
            await stream.send_all(to_line(failure("model_not_found")))

    async with (
        listening(short_dir / f"{leaf}.sock", listen),
        AsyncFrameClient(short_dir) as client,
    ):
        for model in ({"model": "big"}, {}):
            with pytest.raises(RequestFailedError, match="^model_not_found: "):
                await ask(client, **model)
    assert asked == ["big", None]
