"""Requests to a bridge from tasks: a bounded pool of HTTP connections."""

from collections.abc import AsyncIterator, Callable
from typing import Final, Self, cast

import anyio
import httpcore2

from inferd.client.connection.pool import IdleConnections
from inferd.client.core.bridge_body import BodyReader
from inferd.client.core.bridge_calls import BridgeCall, call_of, recording_call
from inferd.client.core.failures import ClientError, ConnectionLostError
from inferd.client.core.offers import DaemonStatus, bridge_status, offered
from inferd.client.core.plans import AnySurface
from inferd.client.exchange import Exchange
from inferd.client.library.async_live import LiveHttpAnswer
from inferd.client.library.async_sockets import exchange_sound, time_limit
from inferd.client.library.http_calls import (
    IDLE_S,
    BridgePlace,
    cancelled_frame,
)
from inferd.client.library.recordings import LiveRecording, file_of_live, is_file
from inferd.client.library.settings import ClientSettings, new_id
from inferd.client.surfaces import BLOCKS, describing
from inferd.surfaces import V2
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import DescribeRequest, Request
from inferd.wire.responses import ModelsFrame, Response

SILENT: Final = "no data from the bridge"


class HttpAnswer:
    """A call on a connection of the pool, which it gives back at its end."""

    def __init__(
        self, pool: "AsyncHttpTransport", surface: AnySurface, request: Request
    ) -> None:
        self._pool = pool
        self._request = request
        self._exchange = Exchange(surface)
        self.line = self._exchange.start(request)
        """Of the request."""
        self._connection: httpcore2.AsyncHTTPConnection | None = None
        self._response: httpcore2.Response | None = None
        self._parts: AsyncIterator[bytes] | None = None
        self._reader: BodyReader | None = None
        self._reading: anyio.CancelScope | None = None
        self._call: BridgeCall | None = None
        self._n_frames = 0
        self._is_cancelled = False
        self._is_interrupted = False

    async def begin(self, call: BridgeCall) -> Self:
        """Take a connection; the call is sent with the first frames that are asked for.

        Args:
            call: of the request.
        """
        self._connection = await self._pool.take(self)
        self._call = call
        return self

    async def next_frames(self) -> list[Response]:
        """Return the frames that have come; none at the end of the answer."""
        if self._connection is None:
            return []
        if self._is_interrupted:
            return await self._interrupted()
        frames: list[Response] = []
        try:
            with time_limit(self._pool.timeout, SILENT), anyio.CancelScope() as scope:
                self._reading = scope
                frames = await self._read()
        except BaseException:
            await self.aclose()
            raise
        finally:
            self._reading = None
        if scope.cancelled_caught:
            return await self._interrupted()
        self._n_frames += len(frames)
        return frames

    async def _interrupted(self) -> list[Response]:
        await self.aclose()
        if self._is_cancelled:
            return [cancelled_frame(self._request, self._n_frames)]
        raise ConnectionLostError("the client is closed")

    async def _read(self) -> list[Response]:
        """Read until there are frames, or the answer ends."""
        with self._pool.place.telling_failures():
            reader, parts = await self._begun()
            async for data in parts:
                frames, failure = reader.read(data)
                if failure is not None:
                    raise failure
                if frames:
                    if self._exchange.is_done:  # then the connection can be kept
                        async for _ in parts:
                            pass
                        await self.aclose()
                    return frames
            if (failure := reader.end()) is not None:
                raise failure
        await self.aclose()
        return []

    async def _begun(self) -> tuple[BodyReader, AsyncIterator[bytes]]:
        if self._reader is None or self._parts is None:
            assert self._connection is not None and self._call is not None  # noqa: S101, PT018  # ``begin`` was called
            request = self._pool.place.request(self._call)
            response = await self._connection.handle_async_request(request)
            self._response = response
            self._parts = aiter(response.aiter_stream())
            self._reader = BodyReader(self._exchange, response.status)
        return self._reader, self._parts

    async def cancel(self) -> bool:
        """Have the bridge end the answer; tell whether it was in progress."""
        if self._connection is None:
            return False
        self._is_cancelled = True
        self.interrupt()
        return True

    def interrupt(self) -> None:
        """End the answer, and the wait for its frames, if a task is in it."""
        self._is_interrupted = True
        if self._reading is not None:
            self._reading.cancel()

    async def aclose(self) -> None:
        """Hang up, unless the answer has ended."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with anyio.CancelScope(shield=True):
            try:
                if self._response is not None:
                    await self._response.aclose()
            finally:
                await self._pool.give_back(self, connection)


class AsyncHttpTransport:
    """A bounded pool of connections to a bridge, as ``HttpTransport`` for tasks.

    Args:
        settings: with the ``url``.

    Raises:
        ValueError: the address or the token is none.

    Ownership: tasks of one event loop share it; close it.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self.place = BridgePlace(settings)
        """Where the bridge is."""
        self._places = anyio.Semaphore(settings.max_connections)
        self._idle = IdleConnections[None, httpcore2.AsyncHTTPConnection](
            settings.max_connections
        )
        self._used: set[HttpAnswer] = set()
        self._live: set[LiveHttpAnswer] = set()
        self._is_closed = False

    @property
    def timeout(self) -> float | None:
        """Seconds without a frame; ``None`` for any time."""
        return self._settings.timeout

    async def ask(self, surface: AnySurface, request: Request) -> HttpAnswer:
        """Send a request once."""
        answer = HttpAnswer(self, surface, request)
        return await answer.begin(call_of(surface.socket, request, answer.line))

    async def transcribe(
        self,
        request: Request,
        recording: LiveRecording,
        read: Callable[[Response], None],
    ) -> None:
        """Have a recording transcribed: a file once it is read, live sound as it comes.

        Args:
            request: with an open attachment.
            recording: to transcribe.
            read: is told each frame.
        """
        if not is_file(recording) and isinstance(request, BlocksRequest):
            await self._transcribe_live(request, recording, read)
            return
        answer = HttpAnswer(self, cast("AnySurface", BLOCKS), request)
        content = await file_of_live(recording)
        await answer.begin(recording_call(request, answer.line, content))
        try:
            while frames := await answer.next_frames():
                for frame in frames:
                    read(frame)
        finally:
            await answer.aclose()

    async def _transcribe_live(
        self,
        request: BlocksRequest,
        recording: LiveRecording,
        read: Callable[[Response], None],
    ) -> None:
        """Send sound as it comes, on a connection of its own, and read its transcript."""
        answer = LiveHttpAnswer(self.place, self.timeout, request)
        with time_limit(self.timeout, "no connection became free"):
            await self._places.acquire()
        self._live.add(answer)
        try:
            await answer.begin()
            await exchange_sound(answer, recording, read)
        finally:
            self._live.discard(answer)
            self._places.release()
            await answer.aclose()

    async def take(self, answer: HttpAnswer) -> httpcore2.AsyncHTTPConnection:
        """Take a connection out of the pool; ``give_back`` it."""
        with time_limit(self.timeout, "no connection became free"):
            await self._places.acquire()
        if self._is_closed:
            self._places.release()
            raise ClientError("the client is closed")
        connection, _ = self._idle.take(None)
        if connection is not None and connection.has_expired():
            await connection.aclose()
            connection = None
        self._used.add(answer)
        return connection or httpcore2.AsyncHTTPConnection(
            self.place.origin,
            ssl_context=self.place.tls,
            keepalive_expiry=IDLE_S,
            uds=self.place.socket,
        )

    async def give_back(
        self, answer: HttpAnswer, connection: httpcore2.AsyncHTTPConnection
    ) -> None:
        """End the use of a connection: keep it, or close it if its answer has not ended."""
        self._used.discard(answer)
        if connection.is_idle() and not self._is_closed:
            self._idle.give_back(None, connection)
        else:
            self._idle.discard()
            await connection.aclose()
        self._places.release()

    async def status(self) -> DaemonStatus:
        """Ask the bridge how the daemon is, by what it serves."""
        surface = cast("AnySurface", describing(V2))
        answer = await self.ask(surface, DescribeRequest(id=new_id()))
        try:
            frames = await answer.next_frames()
        finally:
            await answer.aclose()
        facts = [each.models for each in frames if isinstance(each, ModelsFrame)]
        return bridge_status(offered(facts))

    async def aclose(self) -> None:
        """Close all connections; requests in progress end with ``ConnectionLostError``."""
        self._is_closed = True
        for answer in [*self._used]:
            answer.interrupt()
        for live in [*self._live]:
            live.interrupt()
        for connection in self._idle.clear():
            await connection.aclose()
