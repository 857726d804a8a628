"""Requests over the daemon's sockets from tasks: a bounded pool of connections."""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Protocol, Self, cast

import anyio
from anyio import to_thread

from inferd.client.admin import StatusStream
from inferd.client.connection.loop import LoopConnection, close, connect, receive
from inferd.client.connection.pool import IdleConnections
from inferd.client.core.failures import ClientError, ProtocolError, RequestTimeout
from inferd.client.core.offers import DaemonStatus, daemon_status
from inferd.client.core.plans import AnySurface
from inferd.client.library.recordings import LiveRecording, samples_of
from inferd.client.library.settings import ClientSettings
from inferd.client.library.sockets import STATUS_S
from inferd.client.surfaces import BLOCKS
from inferd.surfaces import ADMIN
from inferd.wire.requests import Request
from inferd.wire.responses import Response, TerminalFrame

AnyConnection = LoopConnection[Request, Response]


class AsyncAnswer(Protocol):
    """One request that was sent, and its answer."""

    async def next_frames(self) -> list[Response]:
        """Return the frames that have come; none at the end of the answer."""
        ...

    async def cancel(self) -> bool:
        """Have the daemon end the answer; tell whether it was in progress."""
        ...

    async def aclose(self) -> None:
        """Cancel the request, unless its answer has ended."""
        ...


class SoundAnswer(Protocol):
    """The answer to a request with an open attachment."""

    async def next_frames(self) -> list[Response]:
        """Return the frames that have come; none at the end of the answer."""
        ...

    async def append(self, samples: bytes, *, is_last: bool = False) -> None:
        """Append audio."""
        ...

    async def aclose(self) -> None:
        """Cancel the request, unless its answer has ended."""
        ...


class AsyncTransport(Protocol):
    """What carries requests from tasks."""

    async def ask(self, surface: AnySurface, request: Request) -> AsyncAnswer:
        """Send a request once."""
        ...

    async def transcribe(
        self,
        request: Request,
        recording: LiveRecording,
        read: Callable[[Response], None],
    ) -> None:
        """Have a recording transcribed; ``read`` is told each frame."""
        ...

    async def status(self) -> DaemonStatus:
        """Ask how the daemon is."""
        ...

    async def aclose(self) -> None:
        """Close everything; requests in progress end."""
        ...


@contextmanager
def time_limit(seconds: float | None, what: str) -> Iterator[None]:
    """Raise ``RequestTimeout`` if the block takes longer; ``None`` for any time."""
    try:
        with anyio.fail_after(seconds):
            yield
    except RequestTimeout:
        raise
    except TimeoutError as error:
        raise RequestTimeout(f"{what} for {seconds:g} s") from error


class SocketAnswer:
    """A request on a connection of the pool, which it gives back at its end."""

    def __init__(
        self, pool: "AsyncSocketTransport", surface: AnySurface, request: Request
    ) -> None:
        self._pool = pool
        self._surface = surface
        self._request = request
        self._connection: AnyConnection | None = None

    async def begin(self) -> Self:
        """Send the request.

        Cancellation: its connection is closed.
        """
        connection = await self._pool.take(self._surface)
        self._connection = connection
        try:
            with time_limit(self._pool.timeout, "the daemon read nothing"):
                await connection.begin(self._request)
        except BaseException:
            self._end()
            raise
        return self

    async def next_frames(self) -> list[Response]:
        """Return the frames that have come; none at the end of the answer."""
        if (connection := self._connection) is None:
            return []
        try:
            with time_limit(self._pool.timeout, "no data from the daemon"):
                frames = await connection.next_frames()
        except BaseException:
            self._end()
            raise
        if isinstance(frames[-1], TerminalFrame):
            self._end()
        return frames

    async def append(self, samples: bytes, *, is_last: bool = False) -> None:
        """Append audio, where an attachment is open."""
        if self._connection is not None:
            await self._connection.append(samples, is_last=is_last)

    async def cancel(self) -> bool:
        """Have the daemon end the answer; tell whether it was in progress."""
        if self._connection is None:
            return False
        return await self._connection.cancel(self._request.id)

    async def aclose(self) -> None:
        """Cancel the request, unless its answer has ended."""
        self._end()

    def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.give_back(self._surface, connection)


class AsyncSocketTransport:
    """A bounded pool of connections to the daemon's sockets.

    A connection serves one request at a time. One whose answer did not come to its end, for
    any reason, is closed, which cancels its request.

    Ownership: tasks of one event loop share it; close it.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._places = anyio.Semaphore(settings.max_connections)
        self._idle = IdleConnections[AnySurface, AnyConnection](
            settings.max_connections
        )
        self._used: set[AnyConnection] = set()
        self._is_closed = False

    @property
    def timeout(self) -> float | None:
        """Seconds without anything from the daemon; ``None`` for any time."""
        return self._settings.timeout

    async def ask(self, surface: AnySurface, request: Request) -> SocketAnswer:
        """Send a request once."""
        return await SocketAnswer(self, surface, request).begin()

    async def transcribe(
        self,
        request: Request,
        recording: LiveRecording,
        read: Callable[[Response], None],
    ) -> None:
        """Have a recording transcribed while it is sent.

        Args:
            request: with an open attachment.
            recording: to transcribe.
            read: is told each frame.
        """
        answer = await self.ask(cast("AnySurface", BLOCKS), request)
        await exchange_sound(answer, recording, read)

    async def take(self, surface: AnySurface) -> AnyConnection:
        """Take a connection out of the pool; ``give_back`` it."""
        with time_limit(self.timeout, "no connection became free"):
            await self._places.acquire()
        if self._is_closed:
            self._places.release()
            raise ClientError("the client is closed")
        connection, surplus = self._idle.take(surface)
        if surplus is not None:
            surplus.close()
        if connection is None:
            settings = self._settings
            connection = LoopConnection(
                surface, settings.directory, settings.trusted_uids
            )
        connection.drop_ended()
        self._used.add(connection)
        return connection

    def give_back(self, surface: AnySurface, connection: AnyConnection) -> None:
        """End the use of a connection: keep it, or close it if its request has not ended."""
        self._used.discard(connection)
        if not connection.is_done or self._is_closed:
            connection.close()
            self._idle.discard()
        else:
            self._idle.give_back(surface, connection)
        self._places.release()

    async def status(self) -> DaemonStatus:
        """Ask the admin socket how the daemon is."""
        settings = self._settings
        with time_limit(min(STATUS_S, settings.timeout or STATUS_S), "no status"):
            sock = await connect(
                ADMIN.socket, settings.directory, trusted_uids=settings.trusted_uids
            )
            try:
                frames = StatusStream()
                while data := await receive(sock):
                    for _, frame in frames.feed(data):
                        if (status := daemon_status(frame)) is not None:
                            return status
            finally:
                close(sock)
        raise ProtocolError("the daemon closed the admin socket without a status")

    async def aclose(self) -> None:
        """Close all connections; requests in progress end with ``ConnectionLostError``."""
        self._is_closed = True
        for connection in (*self._used, *self._idle.clear()):
            connection.close()


def async_transport_for(settings: ClientSettings) -> AsyncTransport:
    """Return what carries the requests of a client: sockets, or HTTP to a bridge."""
    if settings.url is None:
        return AsyncSocketTransport(settings)
    from inferd.client.library.async_http import AsyncHttpTransport  # noqa: PLC0415  # takes 0.1 s

    return AsyncHttpTransport(settings)


async def exchange_sound(
    answer: SoundAnswer, recording: LiveRecording, read: Callable[[Response], None]
) -> None:
    """Send a recording and read its transcript, at once; the first failure ends both."""
    failures: list[Exception] = []

    async def send() -> None:
        try:
            async with aclosing(_blocks(recording)) as blocks:
                async for block in blocks:
                    await answer.append(block)
            await answer.append(b"", is_last=True)
        except Exception as error:  # noqa: BLE001  # raised below, not in a group
            failures.append(error)
            tasks.cancel_scope.cancel()

    async with aclosing(answer), anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        try:
            while frames := await answer.next_frames():
                for frame in frames:
                    read(frame)
        except Exception as error:  # noqa: BLE001  # raised below, not in a group
            failures.append(error)
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]


async def _blocks(recording: LiveRecording) -> AsyncGenerator[bytes, None]:
    """Yield the samples of a recording; those of a file are decoded in a thread."""
    if isinstance(recording, AsyncIterable):
        async for block in recording:
            yield block
        return
    blocks = iter(samples_of(recording))
    is_over = False

    def following() -> bytes:
        nonlocal is_over
        for block in blocks:
            return block
        is_over = True
        return b""

    while not is_over:
        yield await to_thread.run_sync(following, abandon_on_cancel=True)
