"""The client on trio."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from inferd.client.discovery import nobody_at, pauses, socket_paths
from inferd.client.exchange import (
    ConnectionLostError,
    Exchange,
    RequestFailedError,
    StatusStream,
)
from inferd.limits import READ_BYTES
from inferd.paths import ADMIN_SOCKET, INFER_SOCKET
from inferd.wire.requests import GenerateRequest
from inferd.wire.responses import DoneFrame, ErrorFrame, TokenFrame
from inferd.wire.status import AnyStatus


class AsyncClient:
    """A connection to the inference socket, for one request after another.

    Use ``open_client``.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._exchange = Exchange()

    async def generate(
        self, request: GenerateRequest
    ) -> AsyncIterator[TokenFrame | DoneFrame]:
        """Send a request; give its frames as they come, ``done`` last.

        Raises:
            RequestFailedError: the daemon ended it with an error frame.
            ConnectionLostError: the connection ended before it did.

        Cancellation: the answer is left half read; close the client.
        """
        data = self._exchange.start(request)
        with suppress(trio.BrokenResourceError):  # its last words may still be there
            await self._stream.send_all(data)
        while not self._exchange.is_over:
            for response in self._exchange.feed(await self._read()):
                if isinstance(response, ErrorFrame):
                    raise RequestFailedError(response)
                yield response

    async def _read(self) -> bytes | bytearray:
        try:
            return await self._stream.receive_some(READ_BYTES)
        except trio.BrokenResourceError as error:
            raise ConnectionLostError("the connection broke") from error


@asynccontextmanager
async def open_client(directory: Path | None = None) -> AsyncIterator[AsyncClient]:
    """Connect to a daemon; leaving closes the connection and cancels a request.

    Raises:
        NoDaemonError: nobody answers.
    """
    async with await connect(INFER_SOCKET, directory) as stream:
        yield AsyncClient(stream)


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
