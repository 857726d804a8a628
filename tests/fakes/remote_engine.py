"""A server on loopback that answers as a remote engine does, or lies as one may.

It speaks raw bytes: what it sends is what a test says, and what it received is kept.
"""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

Connection = socket.socket
Script = Callable[[Connection], None]
"""Writes an answer; the connection is closed after it."""

HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
)
READ_S: Final = 30.0
"""Seconds that a read may take: a test that fails ends."""


def chunk(content: str | None = None, *, reason: str | None = None, **delta) -> bytes:
    """Write an event of an answer."""
    if content is not None:
        delta["content"] = content
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    body = {"object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return event(body)


def event(body: object) -> bytes:
    """Write an event."""
    return b"data: " + json.dumps(body).encode() + b"\n\n"


USAGE: Final = event(
    {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}
)
DONE: Final = b"data: [DONE]\n\n"
ANSWER: Final = (
    HEAD
    + chunk("", role="assistant")
    + chunk("Hello")
    + chunk(" there")
    + chunk(reason="stop")
    + USAGE
    + DONE
)


def sends(*parts: bytes) -> Script:
    """Make a script that sends these bytes."""

    def script(connection: Connection) -> None:
        for part in parts:
            connection.sendall(part)

    return script


def status(code: int, body: object, *headers: str) -> bytes:
    """Write an answer that is not 200."""
    data = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {code} x", f"Content-Length: {len(data)}", *headers]
    return (
        "\r\n".join([*lines, "Content-Type: application/json", "", ""]).encode() + data
    )


class RemoteEngine:
    """The server; a test sets ``script`` before it asks.

    Args:
        tls: with a certificate.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._tls = tls
        self.script: Script = sends(ANSWER)
        self.requests: list[tuple[bytes, bytes]] = []
        """Heads and bodies, as they came."""
        self.closed = threading.Semaphore(0)
        """Released for each client that has hung up during ``until_hang_up``."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Its address."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Listen no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def until_hang_up(self, *parts: bytes) -> Script:
        """Make a script that sends these bytes, and then waits for the client to hang up."""

        def script(connection: Connection) -> None:
            for part in parts:
                connection.sendall(part)
            with suppress(OSError):
                while connection.recv(4096):
                    pass
            self.closed.release()

        return script

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(
                    target=self._serve, args=(connection,), daemon=True
                ).start()

    def _serve(self, connection: Connection) -> None:
        connection.settimeout(READ_S)
        with suppress(OSError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                self.requests.append(read_request(connection))
                self.script(connection)


def read_request(connection: Connection) -> tuple[bytes, bytes]:
    """Read a request; give its head and its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _received(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    [length] = [
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ] or [0]
    while len(body) < length:
        body += _received(connection)
    return head, body


def _received(connection: Connection) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise OSError("the client hung up")
    return data


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[RemoteEngine]:
    """Give a server that ends with the block."""
    engine = RemoteEngine(tls)
    try:
        yield engine
    finally:
        engine.close()


def endless(part: bytes) -> Script:
    """Make a script that sends the same bytes until the client hangs up."""

    def script(connection: Connection) -> None:
        connection.sendall(HEAD)
        while True:
            connection.sendall(part)

    return script


def slowly(parts: Iterable[bytes], wait: Callable[[], object]) -> Script:
    """Make a script that waits before each of the parts."""

    def script(connection: Connection) -> None:
        for part in parts:
            wait()
            connection.sendall(part)

    return script
