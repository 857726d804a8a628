"""A connection for tasks of trio and of asyncio: anyio waits, the rest is the same."""

import errno
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

import anyio

from inferd.client.discovery import backoff, no_daemon_error, socket_paths
from inferd.client.exchange import (
    ClientError,
    ClientSurface,
    ConnectionLostError,
    Exchange,
    UnreadError,
)
from inferd.client.peer_check import PeerCheck, UntrustedServerError
from inferd.limits.connections import READ_BYTES
from inferd.wire.requests import Request
from inferd.wire.responses import Response

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=Response)


async def connect(
    leaf: str, directory: Path | None = None, *, trusted_uids: Collection[int] = ()
) -> socket.socket:
    """Connect to a socket of the daemon, like ``sync.connect``; it does not block.

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


async def _connect(check: PeerCheck) -> socket.socket:
    """Connect; retry while the listener's backlog is full."""
    for pause in backoff():
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)  # noqa: FBT003  # the standard library's own
            with check.checked_path() as path:
                sock.connect(path)
            check.check_server(sock)
        except OSError as error:
            sock.close()
            if error.errno != errno.EAGAIN:
                raise
            await anyio.sleep(pause)
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise AssertionError  # pauses never end


async def send(sock: socket.socket, data: bytes) -> bool:
    """Send bytes; tell whether all were sent, which a broken connection prevents.

    Cancellation: part of the bytes may have been sent.
    """
    unsent = memoryview(data)
    with suppress(OSError, anyio.ClosedResourceError):  # the last frames can be read
        while unsent:
            try:
                unsent = unsent[sock.send(unsent) :]
            except BlockingIOError:
                await anyio.wait_writable(sock)
        return True
    return False


async def receive(sock: socket.socket) -> bytes:
    """Receive bytes; empty means the end.

    Raises:
        ConnectionLostError: the connection broke, or was closed on this side.
    """
    try:
        while sock.fileno() >= 0:
            await anyio.wait_readable(sock)
            with suppress(BlockingIOError):
                return os.read(sock.fileno(), READ_BYTES)
    except (OSError, anyio.ClosedResourceError) as error:
        raise ConnectionLostError("the connection broke") from error
    raise ConnectionLostError("the connection is closed")


def has_ended(sock: socket.socket) -> bool:
    """Tell whether an end has come, or anything else that nobody asked for."""
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def close(sock: socket.socket) -> None:
    """Close a connection; a task that waits for it gets ``ConnectionLostError``."""
    if sock.fileno() >= 0:
        anyio.notify_closing(sock)
        sock.close()


class LoopConnection(Generic[Q, A]):
    """At most one connection to a socket, with its protocol state.

    Args:
        surface: the kind of requests.
        directory: of the socket; ``None`` for the default ones.
        trusted_uids: as for ``connect``.

    Cancellation: cancelling ``begin`` or ``append`` closes the connection, as part of a line
    may have been sent; one of ``next_frames`` leaves it as it is.
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
        self._socket: socket.socket | None = None
        self._is_sent = True
        self._has_begun = False
        """Whether anything of the answer has come."""
        self._failure: ClientError | None = None
        """What is behind the frames that were returned last."""
        self._sending = anyio.Lock()  # lines must not interleave

    @property
    def is_done(self) -> bool:
        """Whether no request is in progress."""
        return self._exchange.is_done

    async def begin(self, request: Q) -> None:
        """Send a request."""
        async with self._sending:
            sock = await self._connected()
            line = self._exchange.start(request)
            self._has_begun, self._failure = False, None
            with self._closing_on_error():
                self._is_sent = await send(sock, line)

    async def next_frames(self) -> list[A]:
        """Return the frames that have come together, at least one.

        Raises:
            RequestFailedError: the daemon ended the request with an error.
            UnreadError: the daemon has not read the request.
            ClientError: the connection was lost, or the frames are not of this protocol.
        """
        exchange = self._exchange
        while True:
            if self._failure is not None:
                raise self._failure
            frames, self._failure = exchange.next_frames()
            if frames:
                return frames
            if self._failure is not None:
                continue
            exchange.feed(await self._receive())
            self._has_begun = True

    async def _receive(self) -> bytes:
        if self._socket is None:
            raise ConnectionLostError("the connection is closed")
        try:
            data = await receive(self._socket)
        except ConnectionLostError as error:
            is_reset = isinstance(error.__cause__, ConnectionResetError)
            if is_reset and not self._has_begun:
                raise UnreadError("the daemon did not read the request") from error
            raise
        if not (data or self._is_sent or self._has_begun):
            raise UnreadError("the daemon did not read the request")
        return data

    async def append(self, samples: bytes, *, is_last: bool = False) -> None:
        """Append audio to the request in progress, if there is one."""
        if not (samples or is_last):
            return
        async with self._sending:
            if self._socket is not None and not self._exchange.is_done:
                lines = self._exchange.append(samples, is_last=is_last)
                with self._closing_on_error():
                    await send(self._socket, lines)

    async def cancel(self, request_id: str) -> bool:
        """Cancel the request if it is in progress; return whether it is."""
        async with self._sending:
            line = self._exchange.cancel(request_id)
            if self._socket is None or line is None:
                return False
            with self._closing_on_error():
                await send(self._socket, line)
            return True

    def drop_ended(self) -> None:
        """Close the connection if the daemon has; only between requests."""
        if self._socket is not None and has_ended(self._socket):
            self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._socket is not None:
            close(self._socket)
            self._socket = None

    async def _connected(self) -> socket.socket:
        if not self._exchange.is_done and self._socket is not None:
            raise ClientError("the answer to the last request is not complete")
        if self._socket is None:
            self._socket = await connect(
                self._surface.socket, self._directory, trusted_uids=self._trusted_uids
            )
            self._exchange = Exchange(self._surface)
        return self._socket

    @contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        """Close the connection if the block raises: a line may be partly sent."""
        try:
            yield
        except BaseException:
            self.close()
            raise
