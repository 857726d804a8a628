from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from inferd.client.asynchronous import connect, open_client, watch_status
from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import (
    ConnectionLostError,
    ProtocolError,
    RequestFailedError,
)
from inferd.errors import ErrorCode
from inferd.wire.requests import ChatMessage, GenerateRequest
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
        async with open_client(short_dir) as client:
            assert await contents(client, request()) == ["Hel", "lo", "Hello"]


async def test_a_connection_serves_one_request_after_another(short_dir, autojump_clock):
    dialogue = answers([done("a", "first")], [done("b", "second")])
    async with listening(infer(short_dir), dialogue):
        async with open_client(short_dir) as client:
            assert await contents(client, request("first")) == ["a"]
            assert await contents(client, request("second")) == ["b"]


async def test_an_error_frame_is_raised(short_dir, autojump_clock):
    async with listening(infer(short_dir), answers([failure("queue_full")])):
        async with open_client(short_dir) as client:
            with pytest.raises(RequestFailedError) as caught:
                await contents(client, request())
    assert caught.value.code is ErrorCode.QUEUE_FULL


async def test_a_daemon_that_closes_in_mid_answer_lost_the_connection(
    short_dir, autojump_clock
):
    async with listening(infer(short_dir), answers([token("a")])):
        async with open_client(short_dir) as client:
            with pytest.raises(ConnectionLostError):
                await contents(client, request())


async def test_a_daemon_that_resets_the_connection_lost_it(short_dir, autojump_clock):
    async def leave(stream: trio.SocketStream) -> None:
        await stream.receive_some(1)  # the rest is not read, so closing resets

    async with listening(infer(short_dir), leave), open_client(short_dir) as client:
        with pytest.raises(ConnectionLostError):
            await contents(client, request())


async def test_a_daemon_that_closed_before_the_request_lost_the_connection(
    short_dir, autojump_clock
):
    async with listening(infer(short_dir), says()), open_client(short_dir) as client:
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ConnectionLostError):
            await contents(client, request())


async def test_what_a_daemon_said_before_it_closed_is_heard(short_dir, autojump_clock):
    refusal = says(failure("queue_full", request_id=""))
    async with listening(infer(short_dir), refusal), open_client(short_dir) as client:
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RequestFailedError) as caught:
            await contents(client, request())
    assert caught.value.code is ErrorCode.QUEUE_FULL


async def test_a_frame_for_somebody_else_is_refused(short_dir, autojump_clock):
    async with listening(infer(short_dir), answers([done("a", "not ours")])):
        async with open_client(short_dir) as client:
            with pytest.raises(ProtocolError, match="not ours"):
                await contents(client, request())


async def test_leaving_closes_the_connection(short_dir, autojump_clock):
    seen: list[bytes] = []

    async def listen(stream: trio.SocketStream) -> None:
        seen.append(bytes(await stream.receive_some(100)))

    async with listening(infer(short_dir), listen):
        async with open_client(short_dir):
            pass
        await trio.testing.wait_all_tasks_blocked()
    assert seen == [b""]


# --- connecting -------------------------------------------------------------------------


async def test_nobody_there_is_told_with_the_place(short_dir, autojump_clock):
    with pytest.raises(NoDaemonError, match=f"{infer(short_dir)} .No such file"):
        await connect("infer.sock", short_dir)


async def test_a_socket_that_nobody_listens_on_is_nobody(short_dir, autojump_clock):
    with trio.socket.socket(trio.socket.AF_UNIX) as left:
        await left.bind(str(infer(short_dir)))
    with pytest.raises(NoDaemonError, match="refused"):
        await connect("infer.sock", short_dir)


async def test_places_are_tried_in_order(short_dir, monkeypatch, autojump_clock):
    first, second = short_dir / "first", short_dir / "second"
    for directory in (first, second):
        directory.mkdir()
    monkeypatch.setattr(
        "inferd.client.discovery.client_directories", lambda: [first, second]
    )
    async with listening(infer(second), answers([done("second")])):
        async with open_client() as client:
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


async def test_statuses_are_given_until_the_end(short_dir, autojump_clock):
    words = ["starting", "loading_model", "ready", "draining"]
    async with listening(short_dir / "admin.sock", says(*map(status, words))):
        seen = [each.status async for each in watch_status(short_dir)]
    assert seen == words
