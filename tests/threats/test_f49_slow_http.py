import socket
from contextlib import ExitStack
from typing import Any

import pytest
import trio

from inferd.bridge.http.guard import HeadRules
from inferd.bridge.http.server import HttpServer
from inferd.bridge.translation.failures import BridgeError
from inferd.config.bridge import BridgeSettings

PATIENCE_S = 90
N_CONNECTIONS = 4
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def hello(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hi"})


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nx: "])
async def test_senders_of_nothing_keep_nobody_out(sent):
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


def test_a_length_that_two_could_read_differently_is_refused():
    both = [(b"content-length", b"4"), (b"Transfer-Encoding", b"chunked")]
    with pytest.raises(BridgeError, match="contradict"):
        HeadRules(frozenset()).check(both)
