"""Requests to a bridge from threads: a bounded pool of HTTP connections."""

import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic

import httpcore2

from inferd.client.connection.http_socket import HttpSocket
from inferd.client.connection.pool import IdleConnections
from inferd.client.core.bridge_body import BodyReader
from inferd.client.core.bridge_calls import (
    BridgeCall,
    call_of,
    is_recording,
    recording_call,
)
from inferd.client.core.failures import ClientError, RequestTimeout
from inferd.client.core.offers import DaemonStatus, bridge_status, offered
from inferd.client.core.plans import AnySurface
from inferd.client.exchange import Exchange
from inferd.client.library.http_calls import (
    IDLE_S,
    BridgePlace,
    cancelled_frame,
)
from inferd.client.library.live_http import LiveBridgeConnection
from inferd.client.library.recordings import (
    Recording,
    file_of,
    is_file,
    samples_of,
)
from inferd.client.library.settings import ClientSettings, new_id
from inferd.client.surfaces import describing
from inferd.surfaces import V2
from inferd.wire.requests import DescribeRequest, Request
from inferd.wire.responses import ModelsFrame, Response


class BridgeConnection:
    """A connection to a bridge, for one call at a time.

    Args:
        place: of the bridge.
        timeout_s: seconds without a frame; ``None`` for any time.

    Ownership: one thread asks; any may ``interrupt`` it.
    """

    def __init__(self, place: BridgePlace, timeout_s: float | None) -> None:
        self._place = place
        self._timeout_s = timeout_s
        self._connection = httpcore2.HTTPConnection(
            place.origin,
            ssl_context=place.tls,
            keepalive_expiry=IDLE_S,
            uds=place.socket,
        )
        self._socket = HttpSocket()

    @property
    def is_kept(self) -> bool:
        """Whether another call may follow."""
        connection = self._connection
        return connection.is_idle() and not connection.has_expired()

    def ask(
        self, exchange: Exchange[Request, Response], call: BridgeCall
    ) -> Iterator[Response]:
        """Send a call and yield the frames of its answer.

        Raises:
            ClientError: it failed.
        """
        with self._place.telling_failures():
            request = self._place.request(call, trace=self._socket.note)
            response = self._connection.handle_request(request)
            try:
                yield from self._frames(exchange, response)
            finally:
                response.close()

    def _frames(
        self, exchange: Exchange[Request, Response], response: httpcore2.Response
    ) -> Iterator[Response]:
        reader = BodyReader(exchange, response.status)
        told_at = monotonic()
        for data in response.iter_stream():
            frames, failure = reader.read(data)
            yield from frames
            if failure is not None:
                raise failure
            now = monotonic()
            if frames:
                told_at = now
            elif self._timeout_s is not None and now > told_at + self._timeout_s:
                raise self._place.timeout()  # what came keeps the connection alive alone
        if (failure := reader.end()) is not None:
            raise failure

    def interrupt(self) -> None:
        """End the connection and the call in progress, from any thread."""
        self._socket.interrupt()

    def close(self) -> None:
        """Close the connection; no call may be in progress."""
        self._connection.close()


class HttpTransport:
    """A bounded pool of connections to a bridge.

    A connection serves one request at a time. One whose answer did not come to its end, for
    any reason, is closed, by which the bridge cancels its request.

    Args:
        settings: with the ``url``.

    Raises:
        ValueError: the address or the token is none.

    Ownership: threads share it; ``close`` it.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._place = BridgePlace(settings)
        self._places = threading.BoundedSemaphore(settings.max_connections)
        self._lock = threading.Lock()
        self._idle = IdleConnections[None, BridgeConnection](settings.max_connections)
        self._used: dict[str, BridgeConnection] = {}
        self._live_calls: dict[str, LiveBridgeConnection] = {}
        self._cancelled: set[str] = set()
        self._is_closed = False

    def ask(
        self, surface: AnySurface, request: Request, recording: Recording | None
    ) -> Generator[Response, None, None]:
        """Send a request once and yield the frames of its answer."""
        exchange = Exchange(surface)
        line = exchange.start(request)
        n_frames = 0
        with self._connection(request.id) as connection:
            if recording is not None and not is_file(recording):
                frames = self._live(request.id, exchange, line, samples_of(recording))
            elif is_recording(request) and recording is not None:
                call = recording_call(request, line, file_of(recording))
                frames = connection.ask(exchange, call)
            else:
                call = call_of(surface.socket, request, line)
                frames = connection.ask(exchange, call)
            try:
                for frame in frames:
                    n_frames += 1
                    yield frame
            except ClientError:
                if request.id not in self._cancelled:
                    raise
                yield cancelled_frame(request, n_frames)

    def _live(
        self,
        request_id: str,
        exchange: Exchange[Request, Response],
        line: bytes,
        blocks: Iterable[bytes],
    ) -> Iterator[Response]:
        """Send a request whose sound follows, on a connection of its own."""
        live = LiveBridgeConnection(self._place, self._settings.timeout)
        with self._lock:
            self._live_calls[request_id] = live
        try:
            yield from live.ask(exchange, line, blocks)
        finally:
            with self._lock:
                del self._live_calls[request_id]

    @contextmanager
    def _connection(self, request_id: str) -> Iterator[BridgeConnection]:
        if not self._places.acquire(timeout=self._settings.timeout):
            raise RequestTimeout("no connection became free in time")
        try:
            with self._lock:
                if self._is_closed:
                    raise ClientError("the client is closed")
                connection, _ = self._idle.take(None)
                self._used[request_id] = connection = self._usable(connection)
            try:
                yield connection
            finally:
                self._give_back(request_id, connection)
        finally:
            self._places.release()

    def _usable(self, connection: BridgeConnection | None) -> BridgeConnection:
        if connection is not None and connection.is_kept:
            return connection
        if connection is not None:
            connection.close()
        return BridgeConnection(self._place, self._settings.timeout)

    def _give_back(self, request_id: str, connection: BridgeConnection) -> None:
        with self._lock:
            del self._used[request_id]
            self._cancelled.discard(request_id)
            if connection.is_kept and not self._is_closed:
                self._idle.give_back(None, connection)
            else:
                self._idle.discard()
                connection.close()

    def cancel(self, request_id: str) -> bool:
        """Cancel a request of another thread; tell whether it was in progress."""
        with self._lock:
            if (connection := self._used.get(request_id)) is None:
                return False
            self._cancelled.add(request_id)
            (self._live_calls.get(request_id) or connection).interrupt()
            return True

    def status(self) -> DaemonStatus:
        """Ask the bridge how the daemon is, by what it serves."""
        surface = describing(V2)
        frames = self.ask(surface, DescribeRequest(id=new_id()), None)  # type: ignore[arg-type]
        facts = [each.models for each in frames if isinstance(each, ModelsFrame)]
        return bridge_status(offered(facts))

    def close(self) -> None:
        """Close all connections; requests in progress end with ``ConnectionLostError``."""
        with self._lock:
            self._is_closed = True
            for connection in self._used.values():
                connection.interrupt()
            for live in self._live_calls.values():
                live.interrupt()
            for connection in self._idle.clear():
                connection.close()
