"""A client's connection on trio, opened on demand and closed on any error."""

import errno
import os
import select
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Collection,
    Iterator,
    Sequence,
)
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

import trio

from inferd.client.connection.lock import take
from inferd.client.discovery import backoff, no_daemon_error, socket_paths
from inferd.client.exchange import (
    ClientError,
    ClientSurface,
    ConnectionLostError,
    Exchange,
    UnreadError,
)
from inferd.client.memfd import scm_rights
from inferd.client.peer_check import PeerCheck, UntrustedServerError
from inferd.limits.connections import READ_BYTES
from inferd.wire.requests import Request
from inferd.wire.responses import Response

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=Response)


async def connect(
    leaf: str, directory: Path | None = None, *, trusted_uids: Collection[int] = ()
) -> trio.SocketStream:
    """Connect to a socket of the daemon, like ``sync.connect``.

    Raises:
        NoDaemonError: there is no socket, no permission to use it, or no listener.
        UntrustedServerError: an untrusted user listens, or could bind a socket there.
    """
    tried: dict[Path, OSError | UntrustedServerError] = {}
    for path in socket_paths(leaf, directory):
        try:
            return await _connect(PeerCheck.for_socket(path, trusted_uids))
        except (OSError, UntrustedServerError) as error:
            tried[path] = error
    raise no_daemon_error(tried)


async def _connect(check: PeerCheck) -> trio.SocketStream:
    """Connect; retry while the listener's backlog is full.

    trio's ``open_unix_socket`` takes EAGAIN, which for Unix sockets means a full backlog,
    for a connection in progress, and returns a stream that is not connected.
    """
    for pause in backoff():
        sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        try:
            with check.checked_path() as path:
                await sock.connect(path)
            sock.getpeername()
            check.check_server(sock)
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
) -> bool:
    """Send bytes, with descriptors attached to the first; ignore a broken connection.

    Other tasks run only if the kernel does not take all of it at once.

    Returns:
        Whether all were sent.

    Cancellation: part of the bytes may have been sent.
    """
    # of a broken connection, the last frames can still be read
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        if descriptors:  # they go with the first byte
            n_sent = await stream.socket.sendmsg([data], scm_rights(descriptors))
        else:
            n_sent = _send_now(stream, data)
        if n_sent < len(data):
            await stream.send_all(memoryview(data)[n_sent:])
        return True
    return False


def _send_now(stream: trio.SocketStream, data: bytes) -> int:
    """Send what the kernel takes at once; return how many bytes that were.

    Raises:
        OSError: the connection broke, or is closed.
    """
    with suppress(BlockingIOError):
        return os.write(stream.socket.fileno(), data)
    return 0


async def read(stream: trio.SocketStream) -> bytes:
    """Receive bytes; empty means the end.

    It waits before it reads, where ``receive_some`` tries to read first: what comes next has
    rarely come already.

    Raises:
        ConnectionLostError: the connection broke, or was closed on this side.
    """
    try:
        while stream.socket.fileno() >= 0:
            await trio.lowlevel.wait_readable(stream.socket)
            with suppress(BlockingIOError):  # closed meanwhile, its number is -1
                return os.read(stream.socket.fileno(), READ_BYTES)
    except (OSError, trio.ClosedResourceError) as error:
        raise ConnectionLostError("the connection broke") from error
    raise ConnectionLostError("the connection is closed")


async def _read_first(stream: trio.SocketStream, *, is_sent: bool) -> bytes:
    """Receive the beginning of an answer, like ``read``.

    A Unix socket is reset where the other end is closed with unread bytes in it.

    Args:
        stream: the connection.
        is_sent: whether the whole request was sent.

    Raises:
        UnreadError: the daemon has not read all that was sent.
        ConnectionLostError: as ``read``.
    """
    try:
        data = await read(stream)
    except ConnectionLostError as error:
        if isinstance(error.__cause__, ConnectionResetError):
            raise UnreadError("the daemon did not read the request") from error
        raise
    if not (data or is_sent):
        raise UnreadError("the daemon did not read the request")
    return data


class AsyncConnection(Generic[Q, A]):
    """At most one connection to a socket, with its protocol state.

    Args:
        surface: the kind of requests.
        directory: of the socket; ``None`` for the default ones.
        trusted_uids: as for ``connect``.

    Cancellation: cancelling any method closes the connection.
    """

    def __init__(
        self,
        surface: ClientSurface[Q, A],
        directory: Path | None,
        trusted_uids: Collection[int],
    ) -> None:
        self._surface = surface
        self._directory = directory
        self._trusted_uids = trusted_uids
        self._exchange = Exchange(surface)
        self._stream: trio.SocketStream | None = None
        self._is_closed = False
        self._sending = trio.Lock()  # lines must not interleave

    async def ask(
        self, request: Q, descriptors: Sequence[int] = ()
    ) -> AsyncIterator[A]:
        """Send a request and yield the frames of its answer.

        Leaving before the terminal frame has come, for any reason, closes the connection.
        """
        async with aclosing(self.ask_batched(request, descriptors)) as batches:
            async for frames in batches:
                for frame in frames:
                    yield frame

    async def ask_batched(
        self, request: Q, descriptors: Sequence[int] = ()
    ) -> AsyncGenerator[Sequence[A], None]:
        """Send a request like ``ask``; yield the frames that have come together at once.

        None waits for another one.
        """
        stream, is_sent = await self._start(request, descriptors)
        exchange = self._exchange
        try:
            data = await _read_first(stream, is_sent=is_sent)
            while True:
                exchange.feed(data)
                frames, failure = exchange.next_frames()
                if frames:
                    yield frames
                if failure is not None:
                    raise failure
                if exchange.is_done:
                    return
                data = await read(stream)
        finally:
            if not exchange.is_done:
                self._disconnect(stream)

    async def _start(
        self, request: Q, descriptors: Sequence[int]
    ) -> tuple[trio.SocketStream, bool]:
        """Send a request; return the connection, and whether all of it was sent."""
        await take(self._sending)
        try:
            stream = await self._connected()
            line = self._exchange.start(request)
            with self._closing_on_error(stream):
                return stream, await send(stream, line, descriptors)
        finally:
            self._sending.release()

    async def cancel(self, request_id: str) -> bool:
        """Cancel the request if it is in progress; return whether it is."""
        async with self._sending:
            stream, line = self._stream, self._exchange.cancel(request_id)
            if stream is None or line is None:
                return False
            with self._closing_on_error(stream):
                await send(stream, line)
            return True

    async def append(self, request_id: str, samples: bytes, *, is_last: bool) -> bool:
        """Append audio to the request if it is in progress; return whether it is."""
        async with self._sending:
            stream = self._stream
            if stream is None or not self._exchange.is_for(request_id):
                return False
            lines = self._exchange.append(samples, is_last=is_last)
            with self._closing_on_error(stream):
                await send(stream, lines)
            return True

    def close(self) -> None:
        """Close the connection, for good."""
        self._is_closed = True
        if self._stream is not None:
            self._disconnect(self._stream)

    def drop_ended(self) -> None:
        """Close the connection if the daemon has; only between requests."""
        stream = self._stream
        if stream is None or not self._exchange.is_done:
            return
        ready = select.poll()
        ready.register(stream.socket.fileno(), select.POLLIN)
        if ready.poll(0):  # an end, or a frame that nobody has asked for
            self._disconnect(stream)

    async def _connected(self) -> trio.SocketStream:
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
    def _closing_on_error(self, stream: trio.SocketStream) -> Iterator[None]:
        """Close the connection if the block raises: a line may be partly sent."""
        try:
            yield
        except BaseException:
            self._disconnect(stream)
            raise

    def _disconnect(self, stream: trio.SocketStream) -> None:
        if self._stream is stream:
            self._stream = None
        stream.socket.close()
