"""Slow and idle clients; requests that two parsers could read differently, and names and paths
that mean to escape.
"""

import os
import socket
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import h11
import pytest
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.trio.worker_context import WorkerContext
from trio.testing import memory_stream_pair

from inferd.bridge.access_log import BridgeLog
from inferd.bridge.http.app import BridgeApp
from inferd.bridge.http.connection import HttpConnection
from inferd.bridge.http.guard import HeadRules
from inferd.bridge.http.protocol import RequestParser
from inferd.bridge.http.server import HttpServer, _hypercorn_config
from inferd.bridge.identity.caller import Callers, HttpPeer
from inferd.bridge.identity.token_file import ApiTokens
from inferd.bridge.translation.failures import BridgeError
from inferd.bridge.upstream.daemon import DaemonClient
from inferd.config.bridge import BridgeSettings

PATIENCE_S = 90
N_CONNECTIONS = 4
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def hello(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hi"})


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nx: "])
async def test_senders_of_nothing_keep_nobody_out(sent, monkeypatch):
    monkeypatch.setattr("inferd.bridge.http.connection.NEW_CONNECTION_S", 0.01)
    settings = BridgeSettings(max_connections=N_CONNECTIONS)
    failures: list[Exception] = []
    server = HttpServer(hello, settings, None, failures.append)
    stop = trio.Event()
    with trio.fail_after(PATIENCE_S), socket.socket() as sock, ExitStack() as held:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        address = sock.getsockname()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, [sock.dup()], stop)
            for _ in range(3 * N_CONNECTIONS):
                idle = held.enter_context(socket.create_connection(address))
                idle.sendall(sent)
            stream = await trio.open_tcp_stream(*address)
            await stream.send_all(GET)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
            assert server.n_connections <= N_CONNECTIONS
            await stream.aclose()
            stop.set()
    assert not failures


async def test_who_has_most_connections_makes_room_for_others():
    """One holder's connections end before that of another one, which is idle longer."""
    settings = BridgeSettings(max_connections=N_CONNECTIONS)

    async def named(scope: Any, receive: Any, send: Any) -> None:
        scope["state"]["peer"].principal = scope["path"]
        await hello(scope, receive, send)

    failures: list[Exception] = []
    server = HttpServer(named, settings, None, failures.append)
    stop = trio.Event()
    with trio.fail_after(PATIENCE_S), socket.create_server(("127.0.0.1", 0)) as sock:
        address = sock.getsockname()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, [sock.dup()], stop)

            async def ask(stream: trio.SocketStream, name: bytes) -> None:
                await stream.send_all(GET.replace(b"GET /", b"GET /" + name))
                answer = b""
                while not answer.endswith(b"hi"):
                    part = await stream.receive_some()
                    assert part
                    answer += part

            async with AsyncExitStack() as streams:

                async def connect() -> trio.SocketStream:
                    stream = await trio.open_tcp_stream(*address)
                    return await streams.enter_async_context(stream)

                quiet = await connect()
                await ask(quiet, b"quiet")
                for _ in range(2 * N_CONNECTIONS):
                    await ask(await connect(), b"many")
                await ask(quiet, b"quiet")
            stop.set()
    assert not failures


def test_a_length_that_two_could_read_differently_is_refused():
    both = [(b"content-length", b"4"), (b"Transfer-Encoding", b"chunked")]
    with pytest.raises(BridgeError, match="contradict"):
        HeadRules(frozenset()).check(both)


# --- what two parsers could read differently ---------------------------------------------

SETTINGS = BridgeSettings()
BODY = b'{"model":"a\\r\\nX-Evil: 1","messages":[{"role":"user","content":"hi"}]}'


def request(line: bytes, *headers: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join((line, b"Host: localhost", *headers, b"", body))


CHAT = request(
    b"POST /v1/chat/completions HTTP/1.1", b"Content-Length: %d" % len(BODY), body=BODY
)
"""What a proxy takes for a body, or for nothing, and the bridge must not take for a request."""
CHUNKS = b"0\r\n\r\n" + CHAT


def post(*headers: bytes, body: bytes = CHAT) -> bytes:
    return request(b"POST /health HTTP/1.1", *headers, body=body)


AMBIGUOUS = {
    "CL.TE": post(
        b"Content-Length: %d" % len(CHUNKS), b"Transfer-Encoding: chunked", body=CHUNKS
    ),
    "TE.CL": post(b"Transfer-Encoding: chunked", b"Content-Length: 5", body=CHUNKS),
    "TE unknown": post(b"Transfer-Encoding: xchunked", body=CHUNKS),
    "TE list": post(b"Transfer-Encoding: gzip, chunked", body=CHUNKS),
    "TE twice": post(
        b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", body=CHUNKS
    ),
    "TE of HTTP/1.0": request(
        b"POST /health HTTP/1.0", b"Transfer-Encoding: chunked", body=CHUNKS
    ),
    "name and space": post(b"Content-Length : 0"),
    "CL twice": post(b"Content-Length: 0", b"Content-Length: %d" % len(CHAT)),
    "CL list": post(b"Content-Length: 0, %d" % len(CHAT)),
    "CL with a sign": post(b"Content-Length: +0"),
    "CL below 0": post(b"Content-Length: -1"),
    "CL in hex": post(b"Content-Length: 0x0"),
    "CR alone": post(b"X: y\rContent-Length: 0"),
    "NUL": post(b"X: y\0"),
    "chunk extension with LF": post(
        b"Transfer-Encoding: chunked", body=b"2;\nxx\r\nab\r\n" + CHUNKS
    ),
    "LF alone": b"POST /health HTTP/1.1\nHost: localhost\nContent-Length: 0\n\n" + CHAT,
    "LF in a header": post(b"X: y\nContent-Length: 0"),
    "LF at the end": request(
        b"POST /health HTTP/1.1", b"Content-Length: 0\n", body=CHAT
    ),
    "chunk without its end": post(
        b"Transfer-Encoding: chunked", body=b"2\r\nabXX" + CHUNKS
    ),
    "chunk below 0": post(b"Transfer-Encoding: chunked", body=b"-1\r\n\r\n" + CHAT),
    "chunk too large": post(
        b"Transfer-Encoding: chunked", body=b"f" * 21 + b"\r\n" + CHAT
    ),
}
ONE_WAY = {
    "obs-fold": post(b"X: y", b" Content-Length: 0", body=b""),
    "chunk extension": post(b"Transfer-Encoding: chunked", body=b"0;a=b\r\n\r\n"),
}
"""What the parser reads in one way, which the standard allows."""
PATHS = {
    b"//v1/models": 404,
    b"/v1/..;/metrics": 404,
    b"/v1/%2e%2e/metrics": 404,
    b"/v1/models%00": 404,
    b"/%0d%0aX-Evil:%201": 404,
    b"http://evil.example/v1/models": 404,
    b"/%68ealth": 200,  # is /health, for whoever may decide about paths, too
}


async def answers_to(
    data: bytes, directory: Path, *, is_own: bool = True
) -> list[bytes]:
    """Give the answers to what a client sends; it then waits."""
    callers = Callers(ApiTokens(directory / "tokens.json"), os.geteuid())
    daemon = DaemonClient(directory, max_requests=2)  # answers 503
    rules = HeadRules(frozenset({"localhost"}))
    app = BridgeApp(daemon, callers, rules, SETTINGS, BridgeLog(lambda _: None))
    ours, theirs = memory_stream_pair()
    connection = HttpConnection(
        ASGIWrapper(app),  # type: ignore[arg-type]
        theirs,
        HttpPeer(uid=os.geteuid() if is_own else 1, is_looked_up=True),
        config=_hypercorn_config(SETTINGS),
        settings=SETTINGS,
        context=WorkerContext(None),
    )
    received = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        await ours.send_all(data)
        while part := await ours.receive_some():
            received += part
    return received.split(b"HTTP/1.1 ")[1:]


async def test_a_request_sent_ahead_is_answered(short_dir, autojump_clock):
    """What the others must not bring about."""
    whole = post(b"Content-Length: 0")
    health, chat = await answers_to(whole, short_dir)
    assert (health[:3], chat[:3]) == (b"405", b"503")


@pytest.mark.parametrize("data", AMBIGUOUS.values(), ids=AMBIGUOUS)
async def test_nothing_behind_an_ambiguous_request_is_a_request(
    short_dir, autojump_clock, data
):
    found = await answers_to(data, short_dir)
    assert len(found) <= 1
    assert all(each[:3] in (b"400", b"405", b"501") for each in found)


@pytest.mark.parametrize("data", ONE_WAY.values(), ids=ONE_WAY)
async def test_what_is_allowed_is_read_in_one_way(short_dir, autojump_clock, data):
    found = await answers_to(data + CHAT, short_dir)
    assert [each[:3] for each in found] == [b"405", b"503"]


@pytest.mark.parametrize(("path", "status"), PATHS.items())
async def test_a_path_is_that_of_a_route_or_none(
    short_dir, autojump_clock, path, status
):
    [found] = await answers_to(request(b"GET %b HTTP/1.1" % path), short_dir)
    assert int(found[:3]) == status
    head, _, _ = found.partition(b"\r\n\r\n")
    assert b"evil" not in head.lower()


async def test_a_name_with_line_ends_is_no_header(short_dir, autojump_clock):
    [found] = await answers_to(CHAT, short_dir)
    head, _, _ = found.partition(b"\r\n\r\n")
    assert b"evil" not in head.lower()


async def test_who_may_not_ask_makes_the_bridge_read_no_body(short_dir, autojump_clock):
    [found] = await answers_to(CHAT, short_dir, is_own=False)
    assert found[:3] == b"401"


async def test_lf_alone_is_found_in_any_pieces_and_not_in_bodies(
    short_dir, autojump_clock
):
    body = b'{\n"a":\n1}'
    head = b"Content-Length: %d" % len(body)
    good = request(b"POST /v1/chat/completions HTTP/1.1", head, body=body)
    lines = b"GET /health HTTP/1.1\r\nHost: localhost\n\r\n"
    first, *more = await answers_to(good + good + lines, short_dir)
    assert (first[:3], [each[:3] for each in more]) == (b"400", [b"400", b"400"])
    assert b"a" in first
    assert b"no request of HTTP/1.1" in more[-1]
    parser = RequestParser(4096)
    with pytest.raises(h11.RemoteProtocolError, match="LF alone"):
        for each in lines:
            parser.receive_data(bytes([each]))
            parser.next_event()
