"""The blocking client."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from inferd.client.admin import Order, StatusStream
from inferd.client.discovery import (
    NoDaemonError,
    nobody_at,
    pauses,
    socket_paths,
)
from inferd.client.exchange import (
    ClientError,
    ConnectionLostError,
    Exchange,
    Surface,
)
from inferd.client.frames import Answer, BlocksAnswer, TextAnswer
from inferd.client.surfaces import BLOCKS, EMBED, RERANK, TEXT
from inferd.limits import READ_BYTES
from inferd.paths import ADMIN_SOCKET
from inferd.wire.blocks import BlocksRequest
from inferd.wire.codec import Request
from inferd.wire.commands import Command, Reply
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from inferd.wire.responses import EmbeddingsFrame, RerankFrame
from inferd.wire.status import AnyStatus

READY = "ready"

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=Answer)


class Client:
    """A daemon's inference sockets: of each, one request after another.

    A socket is connected to when it is first needed. What each method raises:

    - ``NoDaemonError``: nobody answers there.
    - ``RequestFailedError``: the daemon ended the request with an error frame.
    - ``ConnectionLostError``: the connection ended before the answer did.
    - ``ProtocolError``: what came is no answer.
    - ``ClientError``, the base of these three: the request cannot be sent, or an answer
      on that socket is not read to its end.

    Args:
        directory: where the sockets are; by default, where a daemon would put them.
        timeout_s: seconds of silence before a call gives up with ``TimeoutError``.

    Ownership: ``close`` it, or use it in a ``with`` block; closing cancels requests.
    """

    def __init__(
        self, directory: Path | None = None, *, timeout_s: float | None = None
    ) -> None:
        self._text = _Connection(TEXT, directory, timeout_s)
        self._blocks = _Connection(BLOCKS, directory, timeout_s)
        self._embed = _Connection(EMBED, directory, timeout_s)
        self._rerank = _Connection(RERANK, directory, timeout_s)
        self._all = (self._text, self._blocks, self._embed, self._rerank)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._all:
            connection.close()

    def generate(self, request: GenerateRequest) -> Iterator[TextAnswer]:
        """Have a v1 request answered; give its frames as they come, ``done`` last.

        There are ``status`` frames among them if ``progress`` was asked for.
        """
        return self._text.ask(request)

    def converse(self, request: BlocksRequest) -> Iterator[BlocksAnswer]:
        """Have a v2 request answered, as ``generate`` does with one of v1."""
        return self._blocks.ask(request)

    def embed(self, request: EmbedRequest) -> EmbeddingsFrame:
        """Have texts turned into embeddings; ``embeddings_of`` reads them."""
        [frame] = self._embed.ask(request)
        return frame

    def rerank(self, request: RerankRequest) -> RerankFrame:
        """Have documents ordered by how well they answer a query."""
        [frame] = self._rerank.ask(request)
        return frame

    def cancel(self, request_id: str) -> bool:
        """Cancel a request that another thread waits for.

        Its answer ends early: a generated one in ``done`` with ``cancelled``, any other
        in a ``RequestFailedError`` with that code.

        Returns:
            Whether such a request was under way; it may have ended meanwhile.
        """
        n_sent = sum(connection.cancel(request_id) for connection in self._all)
        return n_sent > 0


class _Connection(Generic[Q, A]):
    """A connection to one socket, opened when it is first needed."""

    def __init__(
        self, surface: Surface[Q, A], directory: Path | None, timeout_s: float | None
    ) -> None:
        self._socket = surface.socket
        self._directory = directory
        self._timeout_s = timeout_s
        self._exchange = Exchange(surface)
        self._sock: socket.socket | None = None
        self._sending = threading.Lock()  # a cancel must not cut a request in two

    def ask(self, request: Q) -> Iterator[A]:
        with self._sending:
            sock = self._sock = self._sock or self._connect()
            _send(sock, self._exchange.start(request))
        while not self._exchange.is_over:
            if (frame := self._exchange.next_frame()) is not None:
                yield frame
            else:
                self._exchange.feed(_read(sock))

    def cancel(self, request_id: str) -> bool:
        with self._sending:
            line = self._exchange.cancel(request_id)
            if self._sock is None or line is None:
                return False
            _send(self._sock, line)
            return True

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()

    def _connect(self) -> socket.socket:
        sock = connect(self._socket, self._directory)
        sock.settimeout(self._timeout_s)
        return sock


def _send(sock: socket.socket, data: bytes) -> None:
    with suppress(ConnectionError):  # the daemon's last words may still be there
        sock.sendall(data)


def _read(sock: socket.socket) -> bytes:
    try:
        return sock.recv(READ_BYTES)
    except ConnectionError as error:
        raise ConnectionLostError(str(error)) from error


def connect(leaf: str, directory: Path | None = None) -> socket.socket:
    """Connect to a socket of the daemon.

    Raises:
        NoDaemonError: there is none, it is not ours to use, or nobody listens.
    """
    tried: dict[Path, str] = {}
    for path in socket_paths(leaf, directory):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(path))
        except OSError as error:
            sock.close()
            tried[path] = error.strerror or str(error)
        else:
            return sock
    raise nobody_at(tried)


def watch_status(
    directory: Path | None = None, *, timeout_s: float | None = None
) -> Iterator[tuple[bytes, AnyStatus]]:
    """Give each frame of the admin socket, as bytes and as read, until it ends.

    Raises:
        NoDaemonError: nobody answers.
        ProtocolError: what answers is no daemon.
        TimeoutError: ``timeout_s`` seconds of silence.
    """
    with connect(ADMIN_SOCKET, directory) as sock:
        sock.settimeout(timeout_s)
        frames = StatusStream()
        while data := sock.recv(READ_BYTES):
            yield from frames.feed(data)


def command(
    order: Command, directory: Path | None = None, *, timeout_s: float | None = None
) -> Reply:
    """Send a command to the admin socket; give the reply, ``ok`` or not.

    Raises:
        NoDaemonError: nobody answers.
        ClientError: the connection ended before the reply, or what answers is no daemon.
        TimeoutError: ``timeout_s`` seconds of silence.
    """
    exchange = Order(order)
    with connect(ADMIN_SOCKET, directory) as sock:
        sock.settimeout(timeout_s)
        _send(sock, exchange.line)
        while (reply := exchange.feed(_read(sock))) is None:
            pass
        return reply


def wait_until_ready(
    directory: Path | None = None,
    *,
    timeout_s: float,
    on_status: Callable[[AnyStatus], None] = lambda _: None,
    is_hopeless: Callable[[], bool] = lambda: False,
) -> None:
    """Wait for a daemon that is starting.

    Args:
        directory: where its sockets are or will be.
        timeout_s: seconds after which to give up.
        on_status: told every status on the way.
        is_hopeless: asked now and then whether to give up.

    Raises:
        NoDaemonError: it was not ready in time, or there is no hope.
    """
    deadline = time.monotonic() + timeout_s
    for pause in pauses():
        last = "the daemon closed the admin socket"
        try:
            for _, status in watch_status(directory, timeout_s=timeout_s):
                on_status(status)
                if status.status == READY:
                    return
                if time.monotonic() > deadline:
                    last = f"the daemon is still {status.status}"
                    break
        except (OSError, NoDaemonError, ClientError) as error:
            last = str(error)
        if is_hopeless() or time.monotonic() > deadline:
            raise NoDaemonError(last)
        time.sleep(pause)
