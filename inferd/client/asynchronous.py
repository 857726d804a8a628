"""The client on trio."""

import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

import trio

from inferd.client.admin import Order, StatusStream
from inferd.client.discovery import nobody_at, pauses, socket_paths
from inferd.client.exchange import ConnectionLostError, Exchange, Surface
from inferd.client.frames import Answer, BlocksAnswer, TextAnswer
from inferd.client.memory import rights
from inferd.client.surfaces import BLOCKS, EMBED, RERANK, TEXT
from inferd.limits import READ_BYTES
from inferd.paths import ADMIN_SOCKET
from inferd.wire.blocks import BlocksRequest
from inferd.wire.codec import Request
from inferd.wire.commands import Command, Reply
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from inferd.wire.responses import EmbeddingsFrame, RerankFrame
from inferd.wire.status import AnyStatus

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=Answer)


class AsyncClient:
    """A daemon's inference sockets, as ``sync.Client`` has them.

    Requests on different sockets may run side by side, each in a task.

    Args:
        directory: where the sockets are; by default, where a daemon would put them.

    Cancellation: of any method: the answer is left half read; close the client.

    Ownership: use it in an ``async with`` block; leaving closes the connections and
    cancels requests.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._text = _Connection(TEXT, directory)
        self._blocks = _Connection(BLOCKS, directory)
        self._embed = _Connection(EMBED, directory)
        self._rerank = _Connection(RERANK, directory)
        self._all = (self._text, self._blocks, self._embed, self._rerank)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
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

    def generate(self, request: GenerateRequest) -> AsyncIterator[TextAnswer]:
        """Have a v1 request answered; give its frames as they come, ``done`` last.

        There are ``status`` frames among them if ``progress`` was asked for.
        """
        return self._text.ask(request)

    def converse(
        self, request: BlocksRequest, *, descriptors: Sequence[int] = ()
    ) -> AsyncIterator[BlocksAnswer]:
        """Have a v2 request answered, as ``generate`` does with one of v1.

        Args:
            request: its attachments may be ``open``, for ``append``, or have an ``fd``.
            descriptors: of sealed memory, which these ``fd`` count, from 0 on; keep them
                open until the first frame has come.
        """
        return self._blocks.ask(request, descriptors)

    async def append(
        self, request_id: str, samples: bytes, *, is_last: bool = False
    ) -> bool:
        """Add sound to a request that another task waits for, to its open attachment.

        Waits while the daemon has more than it can hear; the other task has to go on
        reading meanwhile.

        Args:
            request_id: of the request.
            samples: whole ones, as in the attachment; may be none.
            is_last: whether nothing more will come.

        Returns:
            Whether such a request was under way; it may have ended meanwhile.

        Raises:
            ClientError: none of its attachments is open, or the line is too large.
        """
        return await self._blocks.append(request_id, samples, is_last=is_last)

    async def embed(self, request: EmbedRequest) -> EmbeddingsFrame:
        """Have texts turned into embeddings; ``embeddings_of`` reads them."""
        [frame] = [each async for each in self._embed.ask(request)]
        return frame

    async def rerank(self, request: RerankRequest) -> RerankFrame:
        """Have documents ordered by how well they answer a query."""
        [frame] = [each async for each in self._rerank.ask(request)]
        return frame

    async def cancel(self, request_id: str) -> bool:
        """Cancel a request that another task waits for.

        Its answer ends early: a generated one in ``done`` with ``cancelled``, any other
        in a ``RequestFailedError`` with that code.

        Returns:
            Whether such a request was under way; it may have ended meanwhile.
        """
        sent = [await connection.cancel(request_id) for connection in self._all]
        return any(sent)


class _Connection(Generic[Q, A]):
    """A connection to one socket, opened when it is first needed."""

    def __init__(self, surface: Surface[Q, A], directory: Path | None) -> None:
        self._socket = surface.socket
        self._directory = directory
        self._exchange = Exchange(surface)
        self._stream: trio.SocketStream | None = None
        self._sending = trio.Lock()  # a cancel must not cut a request in two

    async def ask(
        self, request: Q, descriptors: Sequence[int] = ()
    ) -> AsyncIterator[A]:
        async with self._sending:
            if self._stream is None:
                self._stream = await connect(self._socket, self._directory)
            await _send(self._stream, self._exchange.start(request), descriptors)
        while not self._exchange.is_over:
            if (frame := self._exchange.next_frame()) is not None:
                yield frame
            else:
                self._exchange.feed(await _read(self._stream))

    async def cancel(self, request_id: str) -> bool:
        async with self._sending:
            line = self._exchange.cancel(request_id)
            if self._stream is None or line is None:
                return False
            await _send(self._stream, line)
            return True

    async def append(self, request_id: str, samples: bytes, *, is_last: bool) -> bool:
        async with self._sending:
            if self._stream is None or not self._exchange.is_about(request_id):
                return False
            line = self._exchange.append(samples, is_last=is_last)
            await _send(self._stream, line)
            return True

    def close(self) -> None:
        if self._stream is not None:
            self._stream.socket.close()


async def _send(
    stream: trio.SocketStream, data: bytes, descriptors: Sequence[int] = ()
) -> None:
    # its last words may still be there
    with suppress(trio.BrokenResourceError, ConnectionError):
        n_sent = 0
        if descriptors:  # they go with the first byte
            n_sent = await stream.socket.sendmsg([data], rights(descriptors))
        await stream.send_all(memoryview(data)[n_sent:])


async def _read(stream: trio.SocketStream) -> bytes | bytearray:
    try:
        return await stream.receive_some(READ_BYTES)
    except trio.BrokenResourceError as error:
        raise ConnectionLostError("the connection broke") from error


async def connect(leaf: str, directory: Path | None = None) -> trio.SocketStream:
    """Connect to a socket of the daemon.

    Raises:
        NoDaemonError: there is none, it is not ours to use, or nobody listens.
    """
    tried: dict[Path, str] = {}
    for path in socket_paths(leaf, directory):
        try:
            return await _connect(path)
        except OSError as error:
            tried[path] = error.strerror or str(error)
    raise nobody_at(tried)


async def _connect(path: Path) -> trio.SocketStream:
    """Connect, waiting out a full backlog.

    trio's ``open_unix_socket`` takes EAGAIN, by which the kernel says that the backlog
    is full, for a connection under way, and gives a stream that is not connected.
    """
    for pause in pauses():
        sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        try:
            await sock.connect(str(path))
            sock.getpeername()
        except OSError as error:
            sock.close()
            if error.errno not in (errno.EAGAIN, errno.ENOTCONN):
                raise
            await trio.sleep(pause)
        else:
            return trio.SocketStream(sock)
    raise AssertionError  # pauses never end


async def watch_status(directory: Path | None = None) -> AsyncIterator[AnyStatus]:
    """Give each status of the admin socket until it ends.

    Raises:
        NoDaemonError: nobody answers.
    """
    async with await connect(ADMIN_SOCKET, directory) as stream:
        frames = StatusStream()
        async for data in stream:
            for _, status in frames.feed(data):
                yield status


async def command(order: Command, directory: Path | None = None) -> Reply:
    """Send a command to the admin socket; give the reply, ``ok`` or not.

    Raises:
        NoDaemonError: nobody answers.
        ClientError: the connection ended before the reply, or what answers is no daemon.
    """
    exchange = Order(order)
    async with await connect(ADMIN_SOCKET, directory) as stream:
        await _send(stream, exchange.line)
        while (reply := exchange.feed(await _read(stream))) is None:
            pass
        return reply
