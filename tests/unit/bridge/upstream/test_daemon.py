"""The client of the daemon, against a socket that follows a script."""

import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from inferd.bridge.anthropic.request import ask_message
from inferd.bridge.openai.chat_request import ask_chat
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import Asked, Question
from inferd.bridge.upstream.daemon import DaemonClient
from inferd.client.asynchronous import AsyncFrameClient

Dialogue = Callable[[trio.SocketStream, dict[str, Any]], Awaitable[None]]
ASKED = Asked(request_id="req_1", created_s=7, default_max_tokens=9)
DONE = {
    "type": "done",
    "id": "req_1",
    "usage": {"input_tokens": 1, "output_tokens": 2},
    "stop_reason": "end_turn",
    "backend": "chat",
}


def question(**fields: Any) -> Question:
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    return ask_chat(json.dumps(body).encode(), ASKED)


@asynccontextmanager
async def listening(
    directory: Path, leaf: str, follow: Dialogue
) -> AsyncIterator[None]:
    """Answer the first line of each connection as ``follow`` does."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(
        str(directory / leaf)
    )  # trio's takes a thread, and virtual time jumps
    listener.listen()
    with trio.socket.from_stdlib_socket(listener) as sock:

        async def serve(stream: trio.SocketStream) -> None:
            with trio.move_on_after(90):
                if line := await stream.receive_some():
                    await follow(stream, json.loads(line))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, [trio.SocketListener(sock)])
            with trio.fail_after(90):
                yield
            nursery.cancel_scope.cancel()


def says(*frames: dict[str, Any]) -> Dialogue:
    async def follow(stream: trio.SocketStream, _: dict[str, Any]) -> None:
        await stream.send_all(
            b"".join(json.dumps(each).encode() + b"\n" for each in frames)
        )

    return follow


async def waits(stream: trio.SocketStream, _: dict[str, Any]) -> None:
    await stream.receive_some()  # until the end


async def ask(client: DaemonClient, principal: str = "ada") -> list[Any]:
    async with aclosing(client.ask(question(), principal)) as batches:
        return [frame async for frames in batches for frame in frames]


async def test_an_answer_comes_frame_by_frame(short_dir):
    text = {"type": "frame", "id": "req_1", "block": {"type": "text", "delta": "x"}}
    async with listening(short_dir, "infer.v2.sock", says(text, DONE)):
        with closing(DaemonClient(short_dir, max_requests=2)) as client:
            frames = await ask(client)
    assert [frame.id for frame in frames] == ["req_1", "req_1"]


async def test_an_end_without_a_terminal_frame_is_a_failure(short_dir):
    async with listening(short_dir, "infer.v2.sock", says()):
        with pytest.raises(BridgeError) as caught:
            await ask(DaemonClient(short_dir, max_requests=2))
    assert caught.value.reason is Reason.UNAVAILABLE


async def test_what_is_enough_is_cancelled(short_dir):
    lines: list[Any] = []

    async def follow(stream: trio.SocketStream, _: dict[str, Any]) -> None:
        call = {"type": "tool_use", "tool_call_id": "t", "name": "f", "input": {}}
        await says({"type": "frame", "id": "req_1", "block": call})(stream, {})
        lines.append(json.loads(await stream.receive_some()))
        await says({**DONE, "stop_reason": "cancelled"})(stream, {})

    tool = {"type": "function", "function": {"name": "f"}}
    one = question(tools=[tool], parallel_tool_calls=False)
    async with listening(short_dir, "infer.v2.sock", follow):
        with closing(DaemonClient(short_dir, max_requests=2)) as client:
            async with aclosing(client.ask(one, "ada")) as batches:
                async for frames in batches:
                    for frame in frames:
                        list(one.answer.add(frame))
    assert lines == [{"type": "cancel", "id": "req_1"}]
    assert json.loads(one.answer.whole())["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(("is_gateway", "said"), [(True, "ada"), (False, None)])
async def test_a_gateway_alone_says_who_asks(short_dir, is_gateway, said):
    asked: list[Any] = []

    async def follow(stream: trio.SocketStream, line: dict[str, Any]) -> None:
        asked.append(line.get("principal"))
        await says(DONE)(stream, {})

    async with listening(short_dir, "infer.v2.sock", follow):
        client = DaemonClient(short_dir, max_requests=2, is_gateway=is_gateway)
        with closing(client):
            await ask(client)
    assert asked == [said]


async def test_a_connection_is_kept_unless_one_of_its_ends_has_closed_it(short_dir):
    n_connections = 0
    interrupted = trio.CancelScope()

    async def follow(stream: trio.SocketStream, _: dict[str, Any]) -> None:
        nonlocal n_connections
        n_connections += 1
        await says(DONE)(stream, {})
        await stream.receive_some()  # the next request
        if n_connections == 1:
            await says(DONE)(stream, {})
        else:
            interrupted.cancel()
            assert not await stream.receive_some()

    async with listening(short_dir, "infer.v2.sock", follow):
        with closing(DaemonClient(short_dir, max_requests=2)) as client:
            for n_wanted in (1, 1, 2):
                await ask(client)
                assert n_connections == n_wanted
                await wait_all_tasks_blocked()  # an end has come
            with interrupted:
                await ask(client)
            await ask(client)
    assert n_connections == 3


class Closing:
    """A daemon that closes connections after an answer, for a number of times.

    Args:
        n_closed: connections that it closes.
        how: with the next request unread, with it read, or before it comes.
    """

    def __init__(self, n_closed: int, how: str) -> None:
        self._n_left = n_closed
        self._how = how
        self.n_answers = 0

    async def __call__(self, stream: trio.SocketStream, _: dict[str, Any]) -> None:
        while True:
            await says(DONE)(stream, {})
            self.n_answers += 1
            if self._n_left and self._how == "before":
                break
            await trio.lowlevel.wait_readable(stream.socket)
            if self._n_left and self._how == "unread":
                break
            if not await stream.receive_some() or self._n_left:
                break
        self._n_left = max(0, self._n_left - 1)


@pytest.mark.parametrize("how", ["unread", "before"])
async def test_a_request_that_a_kept_connection_loses_unread_is_sent_once_more(
    short_dir, monkeypatch, how
):
    if how == "before":  # between the look at the connection and the request
        monkeypatch.setattr(AsyncFrameClient, "drop_ended", lambda _: None)
    daemon = Closing(1, how)
    async with listening(short_dir, "infer.v2.sock", daemon):
        with closing(DaemonClient(short_dir, max_requests=2)) as client:
            for _ in range(3):
                assert [frame.id for frame in await ask(client)] == ["req_1"]
                await wait_all_tasks_blocked()
    assert daemon.n_answers == 3


async def test_a_request_that_the_daemon_has_read_is_not_sent_again(short_dir):
    daemon = Closing(1, "read")
    async with listening(short_dir, "infer.v2.sock", daemon):
        with closing(DaemonClient(short_dir, max_requests=2)) as client:
            await ask(client)
            with pytest.raises(BridgeError) as caught:
                await ask(client)
    assert caught.value.reason is Reason.UNAVAILABLE
    assert daemon.n_answers == 1


async def test_a_request_that_is_never_read_fails(short_dir):
    n_connections = 0

    async def close(stream: trio.SocketStream) -> None:
        nonlocal n_connections
        n_connections += 1
        await trio.lowlevel.wait_readable(stream.socket)
        await stream.aclose()

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(short_dir / "infer.v2.sock"))
    listener.listen()
    with trio.socket.from_stdlib_socket(listener) as sock:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, close, [trio.SocketListener(sock)])
            with closing(DaemonClient(short_dir, max_requests=2)) as client:
                with pytest.raises(BridgeError):
                    await ask(client)
            nursery.cancel_scope.cancel()
    assert n_connections == 2


async def test_one_principal_leaves_places_for_others(short_dir):
    client = DaemonClient(short_dir, max_requests=4)
    async with listening(short_dir, "infer.v2.sock", waits):
        async with trio.open_nursery() as nursery:
            for principal in ("ada", "ada", "bob", "eve"):
                nursery.start_soon(ask, client, principal)
            while client.n_requests < 4:
                await trio.lowlevel.checkpoint()
            with pytest.raises(BridgeError) as caught:
                await ask(client, "new")
            assert caught.value.reason is Reason.QUEUE_FULL
            nursery.cancel_scope.cancel()
        assert client.n_requests == 0
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(ask, client, "ada")
            while client.n_requests < 2:
                await trio.lowlevel.checkpoint()
            with pytest.raises(BridgeError):
                await ask(client, "ada")
            nursery.start_soon(ask, client, "bob")
            while client.n_requests < 3:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()


async def test_a_daemon_is_up_where_one_of_its_sockets_takes_connections(short_dir):
    client = DaemonClient(short_dir, max_requests=1)
    assert not await client.is_up()
    async with listening(short_dir, "infer.embed.sock", waits):
        assert await client.is_up()


async def test_a_client_that_is_closed_fails_what_runs_and_what_comes(short_dir):
    async def begin(stream: trio.SocketStream, _: dict[str, Any]) -> None:
        client.close()
        assert not await stream.receive_some()

    client = DaemonClient(short_dir, max_requests=2)
    async with listening(short_dir, "infer.v2.sock", begin):
        for _ in range(2):
            with pytest.raises(BridgeError, match="going down") as caught:
                async with aclosing(client.ask(question(), "ada")) as frames:
                    async for _ in frames:
                        pass
            assert caught.value.reason is Reason.UNAVAILABLE
    assert not client.n_requests


async def test_the_refusal_that_is_told_is_of_the_name_as_it_was_asked_for(short_dir):
    async def refuse(stream: trio.SocketStream, request: dict[str, Any]) -> None:
        can = "nothing" if request.get("thinking") else "chat"
        text = f'model "{request["model"]}" is not served here; can do this: {can}'
        refusal = {"type": "error", "code": "model_not_found", "message": text}
        await says({**refusal, "id": request["id"]})(stream, request)
        if line := await stream.receive_some():
            await refuse(stream, json.loads(line))

    asked = replace(
        ask_message(
            b'{"model":"a","max_tokens":9,"messages":[{"role":"user","content":"hi"}],'
            b'"thinking":{"type":"adaptive"}}',
            ASKED,
        ),
        other_names=("a:latest",),
    )
    client = DaemonClient(short_dir, max_requests=1)
    async with listening(short_dir, "infer.v2.sock", refuse):
        with pytest.raises(BridgeError) as caught:
            async with aclosing(client.ask(asked, "ada")) as frames:
                async for _ in frames:
                    pass
    assert str(caught.value) == 'model "a" is not served here; can do this: chat'
