"""Requests over the daemon's sockets from threads: a bounded pool of connections."""

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Protocol

from inferd.client.connection.pool import IdleConnections
from inferd.client.connection.sync import SyncConnection
from inferd.client.core.failures import (
    ClientError,
    ConnectionLostError,
    ProtocolError,
    RequestTimeout,
)
from inferd.client.core.offers import DaemonStatus, daemon_status
from inferd.client.core.plans import AnySurface
from inferd.client.library.recordings import Recording, samples_of
from inferd.client.library.settings import ClientSettings
from inferd.client.sync import ExchangeBounds, watch_status
from inferd.wire.requests import Request
from inferd.wire.responses import Response

STATUS_S = 10.0
"""Seconds for one status, from connecting on."""

AnyConnection = SyncConnection[Request, Response]


class Transport(Protocol):
    """What carries requests from threads."""

    def ask(
        self, surface: AnySurface, request: Request, recording: Recording | None
    ) -> Generator[Response, None, None]:
        """Send a request once and yield the frames of its answer."""
        ...

    def cancel(self, request_id: str) -> bool:
        """Cancel a request of another thread; tell whether it was in progress."""
        ...

    def status(self) -> DaemonStatus:
        """Ask how the daemon is."""
        ...

    def close(self) -> None:
        """Close everything; requests in progress end."""
        ...


class SocketTransport:
    """A bounded pool of connections to the daemon's sockets.

    A connection serves one request at a time. One whose answer did not come to its end, for
    any reason, is closed, which cancels its request.

    Ownership: threads share it; ``close`` it.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._places = threading.BoundedSemaphore(settings.max_connections)
        self._lock = threading.Lock()
        self._idle = IdleConnections[AnySurface, AnyConnection](
            settings.max_connections
        )
        self._used: dict[str, AnyConnection] = {}
        self._is_closed = False

    def ask(
        self, surface: AnySurface, request: Request, recording: Recording | None
    ) -> Generator[Response, None, None]:
        """Send a request once and yield the frames of its answer."""
        sound = None if recording is None else samples_of(recording)
        with self._connection(surface, request.id) as connection:
            try:
                yield from connection.ask(request, sound=sound)
            except TimeoutError as error:
                raise RequestTimeout(str(error)) from error

    @contextmanager
    def _connection(
        self, surface: AnySurface, request_id: str
    ) -> Iterator[AnyConnection]:
        if not self._places.acquire(timeout=self._settings.timeout):
            raise RequestTimeout("no connection became free in time")
        try:
            with self._lock:
                if self._is_closed:
                    raise ClientError("the client is closed")
                connection, surplus = self._idle.take(surface)
                connection = connection or self._new(surface)
                self._used[request_id] = connection
            if surplus is not None:
                surplus.close()
            try:
                connection.drop_ended()
                yield connection
            finally:
                self._give_back(surface, request_id, connection)
        finally:
            self._places.release()

    def _give_back(
        self, surface: AnySurface, request_id: str, connection: AnyConnection
    ) -> None:
        with self._lock:
            del self._used[request_id]
            self._idle.give_back(surface, connection)
            if self._is_closed:
                self._close_idle()

    def _new(self, surface: AnySurface) -> AnyConnection:
        settings = self._settings
        return SyncConnection(
            surface, settings.directory, settings.timeout, settings.trusted_uids
        )

    def cancel(self, request_id: str) -> bool:
        """Cancel a request of another thread; tell whether it was in progress."""
        with self._lock:
            connection = self._used.get(request_id)
        return connection is not None and connection.cancel(request_id)

    def status(self) -> DaemonStatus:
        """Ask the admin socket how the daemon is."""
        settings = self._settings
        seconds = min(STATUS_S, settings.timeout or STATUS_S)
        try:
            for _, frame in watch_status(
                settings.directory,
                bounds=ExchangeBounds(seconds),
                trusted_uids=settings.trusted_uids,
            ):
                if (status := daemon_status(frame)) is not None:
                    return status
        except TimeoutError as error:
            raise RequestTimeout(str(error)) from error
        except OSError as error:
            raise ConnectionLostError(str(error)) from error
        raise ProtocolError("the daemon closed the admin socket without a status")

    def close(self) -> None:
        """Close all connections; requests in progress end with ``ConnectionLostError``."""
        with self._lock:
            self._is_closed = True
            for connection in self._used.values():
                connection.close()
            self._close_idle()

    def _close_idle(self) -> None:
        for connection in self._idle.clear():
            connection.close()


def transport_for(settings: ClientSettings) -> Transport:
    """Return what carries the requests of a client: sockets, or HTTP to a bridge."""
    if settings.url is None:
        return SocketTransport(settings)
    from inferd.client.library.http import HttpTransport  # noqa: PLC0415  # takes 0.1 s

    return HttpTransport(settings)
