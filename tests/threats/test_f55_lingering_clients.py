"""Connections that end for others or for what is sent: who has sent something is answered first,
and nobody holds a place for long by it.
"""

import json
import socket
from typing import Any

import pytest
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.trio.worker_context import WorkerContext
from trio.testing import memory_stream_pair

from inferd.bridge.http.connection import HttpConnection
from inferd.bridge.http.server import HttpServer, _hypercorn_config
from inferd.bridge.identity.caller import HttpPeer
from inferd.config.bridge import BridgeSettings
from inferd.limits.bridge import LINGER_S

PATIENCE_S = 90
N_CONNECTIONS = 4
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
UPLOAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
SETTINGS = BridgeSettings(max_connections=N_CONNECTIONS)
NEVER_CLOSED = "inferd.bridge.http.connection.NEW_CONNECTION_S"


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    """Answer without the body."""
    headers = [(b"content-length", b"2"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": b"no"})


async def hello(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hi"})


def connection(stream: Any, app: Any) -> HttpConnection:
    return HttpConnection(
        ASGIWrapper(app),
        stream,
        HttpPeer(uid=1),
        config=_hypercorn_config(SETTINGS),
        settings=SETTINGS,
        context=WorkerContext(None),
    )


async def test_all_that_connect_before_they_send_are_answered(monkeypatch):
    """More than there are places: none of them is closed for another one."""
    monkeypatch.setattr(NEVER_CLOSED, PATIENCE_S)
    failures: list[Exception] = []
    server = HttpServer(hello, SETTINGS, None, failures.append)
    stop = trio.Event()
    with trio.fail_after(PATIENCE_S), socket.create_server(("127.0.0.1", 0)) as sock:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, [sock.dup()], stop)
            streams = [
                await trio.open_tcp_stream(*sock.getsockname())
                for _ in range(3 * N_CONNECTIONS)
            ]
            while server.n_connections < N_CONNECTIONS:
                await trio.lowlevel.checkpoint()
            for stream in streams:
                await stream.send_all(GET)
            for stream in streams:
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
                await stream.aclose()
            stop.set()
    assert not failures


@pytest.mark.parametrize("is_sent_late", [False, True])
async def test_a_request_that_has_begun_is_refused_before_its_place_is_taken(
    is_sent_late, autojump_clock
):
    ours, theirs = memory_stream_pair()
    held = connection(theirs, hello)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(held.run)
        await trio.testing.wait_all_tasks_blocked()
        await ours.send_all(GET[:9])
        if not is_sent_late:
            await trio.testing.wait_all_tasks_blocked()
        await held.evict()
        head, _, body = (await ours.receive_some()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 1" in head
        assert json.loads(body)["error"]["code"] == "queue_full"
        assert not await ours.receive_some()


async def test_silence_is_closed_without_a_word(autojump_clock):
    ours, theirs = memory_stream_pair()
    held = connection(theirs, hello)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(held.run)
        await trio.testing.wait_all_tasks_blocked()
        await held.evict()
        assert not await ours.receive_some()


async def test_who_goes_on_sending_holds_a_place_for_a_bounded_time(autojump_clock):
    ours, theirs = memory_stream_pair()
    held = connection(theirs, refuse)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await ours.send_all(b"x" * 100)
                    await trio.sleep(LINGER_S / 100)

        await ours.send_all(UPLOAD % 10**9)
        nursery.start_soon(send)
        await held.run()
    assert LINGER_S <= trio.current_time() - began < 2 * LINGER_S


async def test_who_lingers_makes_room_at_once(autojump_clock):
    ours, theirs = memory_stream_pair()
    held = connection(theirs, refuse)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(held.run)
        await ours.send_all(UPLOAD % 10**9)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await held.evict()
    assert trio.current_time() - began < LINGER_S


async def test_what_is_sent_without_an_end_is_dropped_up_to_a_bound(
    autojump_clock, monkeypatch
):
    monkeypatch.setattr("inferd.bridge.http.connection.LINGER_BYTES", 100_000)
    ours, theirs = memory_stream_pair()
    held = connection(theirs, refuse)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(held.run)
        await ours.send_all(UPLOAD % 10**9)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            for _ in range(20):
                await ours.send_all(b"x" * 50_000)
                await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == began


async def test_a_client_that_reads_after_its_upload_reads_the_refusal():
    """By real sockets: their kernel tells of unread bytes by a reset."""
    upload = b"x" * (16 * 1024 * 1024)
    told: list[bytes] = []
    server = HttpServer(refuse, SETTINGS, None, lambda _: None)
    stop = trio.Event()

    def send_and_read(address: tuple[str, int]) -> None:
        with socket.create_connection(address, timeout=PATIENCE_S) as client:
            client.sendall(UPLOAD % len(upload) + upload)
            while part := client.recv(1024):
                told.append(part)

    with trio.fail_after(PATIENCE_S), socket.create_server(("127.0.0.1", 0)) as sock:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, [sock.dup()], stop)
            await trio.to_thread.run_sync(send_and_read, sock.getsockname())
            stop.set()
    assert b"".join(told).startswith(b"HTTP/1.1 413 ")
    assert b"".join(told).endswith(b"no")
