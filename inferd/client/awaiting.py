"""A connection of a client on trio: made when it is needed, given up when it broke."""

import errno
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

import trio

from inferd.client.discovery import nobody_at, pauses, socket_paths
from inferd.client.exchange import ClientError, ConnectionLostError, Exchange, Surface
from inferd.client.frames import Answer
from inferd.client.memory import rights
from inferd.client.trust import Trust, UntrustedServerError
from inferd.limits import READ_BYTES
from inferd.wire.codec import Request

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=Answer)


async def connect(
    leaf: str, directory: Path | None = None, *, trusted_uids: Collection[int] = ()
) -> trio.SocketStream:
    """Connect to a socket of the daemon, as ``sync.connect`` does.

    Raises:
        NoDaemonError: there is none, it is not ours to use, or nobody listens.
        UntrustedServerError: somebody else listens, or could put a socket there.
    """
    tried: dict[Path, OSError | UntrustedServerError] = {}
    for path in socket_paths(leaf, directory):
        try:
            return await _connect(Trust.at(path, trusted_uids))
        except (OSError, UntrustedServerError) as error:
            tried[path] = error
    raise nobody_at(tried)


async def _connect(trust: Trust) -> trio.SocketStream:
    """Connect, waiting out a full backlog.

    trio's ``open_unix_socket`` takes EAGAIN, by which the kernel says that the backlog
    is full, for a connection under way, and gives a stream that is not connected.
    """
    for pause in pauses():
        sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        try:
            with trust.held() as way:
                await sock.connect(way)
            sock.getpeername()
            trust.check_server(sock)
        except OSError as error:
            sock.close()
            if error.errno not in (errno.EAGAIN, errno.ENOTCONN):
                raise
            await trio.sleep(pause)
        except BaseException:
            sock.close()
            raise
        else:
            return trio.SocketStream(sock)
    raise AssertionError  # pauses never end


async def send(
    stream: trio.SocketStream, data: bytes, descriptors: Sequence[int] = ()
) -> None:
    """Send bytes, with descriptors along with the first; a broken connection takes none.

    Cancellation: part of them may be sent.
    """
    # its last words may still be there
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        n_sent = 0
        if descriptors:  # they go with the first byte
            n_sent = await stream.socket.sendmsg([data], rights(descriptors))
        await stream.send_all(memoryview(data)[n_sent:])


async def read(stream: trio.SocketStream) -> bytes | bytearray:
    """Read what has come; no bytes mean the end.

    Raises:
        ConnectionLostError: the connection broke, or was closed on this side.
    """
    try:
        return await stream.receive_some(READ_BYTES)
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        raise ConnectionLostError("the connection broke") from error


class Connection(Generic[Q, A]):
    """What a client has of one socket: a connection at most.

    Args:
        surface: what is asked there.
        directory: where the socket is; by default, where a daemon would put it.
        trusted_uids: as ``connect`` has it.

    Cancellation: of any method but ``close`` gives up the connection.
    """

    def __init__(
        self,
        surface: Surface[Q, A],
        directory: Path | None,
        trusted_uids: Collection[int],
    ) -> None:
        self._surface = surface
        self._directory = directory
        self._trusted_uids = trusted_uids
        self._exchange = Exchange(surface)
        self._stream: trio.SocketStream | None = None
        self._is_closed = False
        self._sending = trio.Lock()  # a cancel must not cut a request in two

    async def ask(
        self, request: Q, descriptors: Sequence[int] = ()
    ) -> AsyncIterator[A]:
        """Send a request; give the frames of its answer.

        Whatever ends this before the terminal frame ends the connection.
        """
        async with self._sending:
            stream = await self._usable()
            exchange = self._exchange
            line = exchange.start(request)
            with self._whole(stream):
                await send(stream, line, descriptors)
        try:
            while not exchange.is_over:
                if (frame := exchange.next_frame()) is not None:
                    yield frame
                else:
                    exchange.feed(await read(stream))
        finally:
            if not exchange.is_over:
                self._give_up(stream)

    async def cancel(self, request_id: str) -> bool:
        """Cancel the request, if it is under way; tell whether it is."""
        async with self._sending:
            stream, line = self._stream, self._exchange.cancel(request_id)
            if stream is None or line is None:
                return False
            with self._whole(stream):
                await send(stream, line)
            return True

    async def append(self, request_id: str, samples: bytes, *, is_last: bool) -> bool:
        """Add sound to the request, if it is under way; tell whether it is."""
        async with self._sending:
            stream = self._stream
            if stream is None or not self._exchange.is_about(request_id):
                return False
            line = self._exchange.append(samples, is_last=is_last)
            with self._whole(stream):
                await send(stream, line)
            return True

    def close(self) -> None:
        """Close it for good."""
        self._is_closed = True
        if self._stream is not None:
            self._give_up(self._stream)

    async def _usable(self) -> trio.SocketStream:
        if self._is_closed:
            raise ClientError("the client is closed")
        if self._stream is None:
            stream = await connect(
                self._surface.socket, self._directory, trusted_uids=self._trusted_uids
            )
            self._exchange = Exchange(self._surface)
            self._stream = stream
        return self._stream

    @contextmanager
    def _whole(self, stream: trio.SocketStream) -> Iterator[None]:
        """Give up the connection unless what is sent inside was sent to its end."""
        try:
            yield
        except BaseException:
            self._give_up(stream)
            raise

    def _give_up(self, stream: trio.SocketStream) -> None:
        if self._stream is stream:
            self._stream = None
        stream.socket.close()
