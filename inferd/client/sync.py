"""The blocking client."""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from inferd.client.duplex import Duplex
from inferd.client.exchange import (
    ClientError,
    ConnectionLostError,
    Exchange,
    Surface,
    check_sound,
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

    def converse(
        self,
        request: BlocksRequest,
        *,
        descriptors: Sequence[int] = (),
        sound: Iterable[bytes] | None = None,
    ) -> Iterator[BlocksAnswer]:
        """Have a v2 request answered, as ``generate`` does with one of v1.

        Args:
            request: its attachments may be ``open``, or have an ``fd``.
            descriptors: of sealed memory, which these ``fd`` count, from 0 on; keep them
                open until the first frame has come.
            sound: of the attachment that is open, in blocks of whole samples; sent as it
                comes, and no faster than the daemon hears it. Between blocks what the
                daemon says is read: give an empty one where none comes for a while.
        """
        return self._blocks.ask(request, descriptors, sound)

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
        self._duplex: Duplex | None = None
        self._sending = threading.Lock()  # a cancel must not come before its request

    def ask(
        self,
        request: Q,
        descriptors: Sequence[int] = (),
        sound: Iterable[bytes] | None = None,
    ) -> Iterator[A]:
        check_sound(request, is_given=sound is not None)
        with self._sending:
            duplex = self._duplex = self._duplex or self._connect()
            duplex.put(self._exchange.start(request), descriptors)
        lines = iter(()) if sound is None else self._lines(sound)
        while not self._exchange.is_over:
            if (frame := self._exchange.next_frame()) is not None:
                yield frame
                continue
            line = next(lines, None) if duplex.has_sent else None
            if line:
                duplex.put(line)
            data = duplex.read(waits=line is None)
            if data is not None:
                self._exchange.feed(data)

    def _lines(self, sound: Iterable[bytes]) -> Iterator[bytes]:
        for block in sound:
            yield self._exchange.append(block) if block else b""
        yield self._exchange.append(b"", is_last=True)

    def cancel(self, request_id: str) -> bool:
        with self._sending:
            line = self._exchange.cancel(request_id)
            if self._duplex is None or line is None:
                return False
            self._duplex.put(line)
        self._duplex.flush()
        return True

    def close(self) -> None:
        if self._duplex is not None:
            self._duplex.close()

    def _connect(self) -> Duplex:
        return Duplex(connect(self._socket, self._directory), self._timeout_s)


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
