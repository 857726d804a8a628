"""Connections on virtual time: hypercorn's parser, and our bounds around it."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.trio.worker_context import WorkerContext
from hypothesis import given, strategies as st
from trio.testing import (
    MemoryReceiveStream,
    MemorySendStream,
    MockClock,
    lockstep_stream_pair,
    memory_stream_pair,
)

from inferd.bridge.http.connection import HttpConnection
from inferd.bridge.http.server import _hypercorn_config
from inferd.bridge.identity.caller import HttpPeer
from inferd.config.bridge import BridgeSettings
from inferd.limits.bridge import PIPELINED_BYTES
from tests.cases import each_case

SETTINGS = BridgeSettings(head_s=10, idle_s=75, write_s=60, max_head_bytes=2048)
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Client = trio.StapledStream[MemorySendStream, MemoryReceiveStream]
App = Callable[[Any, Any, Any], Awaitable[None]]


async def respond(send: Any, body: bytes = b"hi") -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Waiting:
    """An application that answers when it is told to, and notes when a client is gone."""

    def __init__(self) -> None:
        self.has_begun = trio.Event()
        self.may_answer = trio.Event()
        self.gone_at: float | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.has_begun.set()
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                self.gone_at = trio.current_time()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            await self.may_answer.wait()
            await respond(send)
            nursery.cancel_scope.cancel()


async def at_once(scope: Any, receive: Any, send: Any) -> None:
    assert isinstance(scope["state"]["peer"], HttpPeer)
    await respond(send)


async def reads_nothing(scope: Any, receive: Any, send: Any) -> None:
    await respond(send, b"no")


@asynccontextmanager
async def served(
    app: App, context: WorkerContext | None = None, pair: Any = memory_stream_pair
) -> AsyncIterator[tuple[Client, trio.Event]]:
    """Give a client's end, and an event of the end of the connection's task."""
    async with connected(app, context, pair) as (client, has_ended, _):
        yield client, has_ended


@asynccontextmanager
async def connected(
    app: App, context: WorkerContext | None = None, pair: Any = memory_stream_pair
) -> AsyncIterator[tuple[Client, trio.Event, HttpConnection]]:
    """Give the connection, too."""
    ours, theirs = pair()
    has_ended = trio.Event()
    connection = HttpConnection(
        ASGIWrapper(app),
        theirs,
        HttpPeer(uid=1),
        config=_hypercorn_config(SETTINGS),
        settings=SETTINGS,
        context=context or WorkerContext(None),
    )

    async def run() -> None:
        await connection.run()
        has_ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield ours, has_ended, connection
        nursery.cancel_scope.cancel()


async def takes_all(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_all(client: Client) -> bytes:
    data = b""
    while part := await client.receive_some():
        data += part
    return data


def refusal(data: bytes) -> tuple[int, Any]:
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


async def read_until(client: Client, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        part = await client.receive_some()
        assert part, data
        data += part
    return data


async def test_requests_are_answered_one_after_the_other(autojump_clock):
    async with served(at_once) as (client, _):
        for _ in range(3):
            await client.send_all(GET)
            assert b" 200 " in await read_until(client, b"\r\n\r\nhi")


async def test_a_request_that_is_sent_ahead_is_answered_later(autojump_clock):
    async with served(at_once) as (client, _):
        await client.send_all(GET * 3)
        data = b""
        while data.count(b"\r\n\r\nhi") < 3:
            part = await client.receive_some()
            assert part, data
            data += part
        assert data.count(b" 200 ") == 3


async def streams(scope: Any, receive: Any, send: Any) -> None:
    """Stream in parts as the bridge's answers do."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    parts = ((b"one", False), (b"", False), (b"two" * 9, False), (b"end", True))
    for part, is_last in parts:
        if not await scope["state"]["write"](part, is_last=is_last):
            await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body"})


async def test_a_stream_is_in_chunks_with_its_head_and_its_end_sent_along(
    autojump_clock,
):
    async with served(streams, pair=lockstep_stream_pair) as (client, _):
        for _ in range(2):
            await client.send_all(GET)
            writes = [await client.receive_some() for _ in range(3)]
            assert writes[0].startswith(b"HTTP/1.1 200 ")
            assert writes[0].endswith(b"\r\n\r\n3\r\none\r\n")
            assert bytes(writes[1]) == b"1b\r\n" + b"two" * 9 + b"\r\n"
            assert bytes(writes[2]) == b"3\r\nend\r\n0\r\n\r\n"


async def test_a_client_of_http_1_0_gets_a_stream_without_chunks(autojump_clock):
    async with served(streams) as (client, _):
        await client.send_all(GET.replace(b"1.1", b"1.0"))
        _, _, body = (await read_all(client)).partition(b"\r\n\r\n")
    assert body == b"one" + b"two" * 9 + b"end"


@pytest.mark.parametrize("sent", [b"", b"GET / HT"])
async def test_a_head_has_to_come_in_time(autojump_clock, sent):
    async with served(at_once) as (client, has_ended):
        if sent:
            await client.send_all(sent)
        await has_ended.wait()
        assert trio.current_time() == (10 if sent else 75)


async def test_no_byte_now_and_then_makes_the_time_longer(autojump_clock):
    async with served(at_once) as (client, has_ended):
        async with trio.open_nursery() as nursery:

            async def dribble() -> None:
                await client.send_all(b"GET / HTTP/1.1\r\n")
                while True:
                    await trio.sleep(1)
                    await client.send_all(b"x: y\r\n")

            nursery.start_soon(dribble)
            await has_ended.wait()
            nursery.cancel_scope.cancel()
        assert trio.current_time() == 10


async def test_the_time_between_requests_begins_with_the_end_of_an_answer(
    autojump_clock,
):
    app = Waiting()
    async with served(app) as (client, has_ended):
        await client.send_all(GET)
        await trio.sleep(1000)
        app.may_answer.set()
        await read_until(client, b"hi")
        assert not has_ended.is_set()
        await has_ended.wait()
        assert trio.current_time() == 1075


@pytest.mark.parametrize("ahead", [b"", b"GET / HT", GET])
async def test_the_end_of_the_connection_is_seen_at_once(autojump_clock, ahead):
    app = Waiting()
    async with served(app) as (client, has_ended):
        await client.send_all(GET + ahead)
        await app.has_begun.wait()
        await trio.sleep(3)
        await client.aclose()
        await has_ended.wait()
        assert app.gone_at == trio.current_time() == 3


async def test_what_is_sent_ahead_is_bounded(autojump_clock):
    app = Waiting()
    async with served(app) as (client, has_ended):
        await client.send_all(GET)
        await app.has_begun.wait()
        await client.send_all(b"x" * 3 * PIPELINED_BYTES)
        await has_ended.wait()
        assert app.gone_at == 0


async def test_a_client_that_does_not_read_is_disconnected(autojump_clock):
    async with served(at_once, pair=lockstep_stream_pair) as (client, has_ended):
        await client.send_all(GET)
        await has_ended.wait()
        assert trio.current_time() == 60


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"], ids=["unfinished", "at once"])
async def test_a_head_that_is_too_large_is_refused(autojump_clock, end):
    async with served(at_once) as (client, has_ended):
        await client.send_all(b"GET / HTTP/1.1\r\nHost: x\r\nx: " + b"y" * 4096 + end)
        status, error = refusal(await read_all(client))
        assert (status, error["code"]) == (431, "request_too_large")
        await has_ended.wait()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_no_request_is_refused_in_a_form_that_clients_read(
    autojump_clock, sent
):
    async with served(takes_all) as (client, has_ended):
        await client.send_all(sent)
        status, error = refusal(await read_all(client))
        assert (status, error["code"]) == (400, "invalid_request")
        await has_ended.wait()


@each_case(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\n folded: x\r\n\r\n",
    ],
)
async def test_no_other_protocol_is_spoken_and_no_length_is_guessed(
    autojump_clock, head
):
    async with served(at_once) as (client, _):
        await client.send_all(head)
        data = await client.receive_some()
        assert data.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 4", b"HTTP/1.1 501 "))


async def test_an_answer_before_the_body_says_that_the_connection_ends(autojump_clock):
    """As that to a path that is not served: the next request on it would be lost."""
    async with served(at_once) as (client, has_ended):
        await client.send_all(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
        )
        head, _, _ = (await read_until(client, b"hi")).partition(b"\r\n\r\n")
        await client.send_all(b"{}")
        await has_ended.wait()
    assert b"connection: close" in head.splitlines()


async def test_a_body_that_nobody_reads_ends_the_connection(autojump_clock):
    async with served(reads_nothing) as (client, has_ended):
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\n"
        await client.send_all(head + b"x" * 900_000)
        await read_until(client, b"no")
        await has_ended.wait()


async def test_an_idle_connection_ends_with_the_bridge_and_a_busy_one_later(
    autojump_clock,
):
    context, app = WorkerContext(None), Waiting()
    async with connected(app, context) as (busy, busy_ended, busy_one):
        async with connected(at_once, context) as (_, idle_ended, idle_one):
            await busy.send_all(GET)
            await app.has_begun.wait()
            await context.terminated.set()
            for connection in (busy_one, idle_one):
                await connection.close_if_idle()
            await idle_ended.wait()
            async with served(at_once, context) as (_, new_ended):
                await new_ended.wait()
            assert trio.current_time() == 0
            assert not busy_ended.is_set()
            app.may_answer.set()
            await read_until(busy, b"hi")
            await busy_ended.wait()


async def test_an_upgrade_is_ignored(autojump_clock):
    key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b==\r\n" % (b"A" * 22)
    upgrade = b"Connection: upgrade\r\nUpgrade: websocket\r\n" + key
    head = GET.replace(b"\r\n\r\n", b"\r\n" + upgrade + b"\r\n")
    async with served(at_once, pair=lockstep_stream_pair) as (client, _):
        await client.send_all(head)
        await client.send_all(b"what is sent while the answer is not read")
        assert b" 200 " in await read_until(client, b"hi")


async def test_the_end_behind_an_upgrade_is_seen(autojump_clock):
    app = Waiting()
    async with served(app) as (client, has_ended):
        await client.send_all(GET[:-2] + b"Connection: upgrade\r\nUpgrade: x\r\n\r\n")
        await app.has_begun.wait()
        await client.send_all(b"x" * 3 * PIPELINED_BYTES)
        with trio.fail_after(1000):
            await has_ended.wait()
        assert app.gone_at == 0


PARTS = (
    b"GET / HTTP/1.1\r\n",
    b"POST / HTTP/1.1\r\n",
    b"Host: x\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: upgrade\r\nUpgrade: websocket\r\n",
    b"Expect: 100-continue\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\r\n",
    b"3\r\nabc\r\n0\r\n\r\n",
)


@given(st.lists(st.sampled_from(PARTS) | st.binary(max_size=20), max_size=12))
def test_any_bytes_are_answered_or_end_the_connection(parts):
    async def main() -> None:
        async with served(respond_or_refuse) as (client, has_ended):
            for part in parts:
                with suppress(trio.BrokenResourceError):
                    await client.send_all(part)
            with trio.fail_after(1000):
                await has_ended.wait()

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def respond_or_refuse(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await respond(send)
