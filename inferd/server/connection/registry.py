"""Registry of the inference sockets' connections, for reload and shutdown."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import trio

from inferd.server.identity.access import Access

FIRST_REQUEST_S: Final = 1.0
"""Seconds of the drain in which an accepted client may still send its first request. A
client in the backlog of an inherited socket is accepted by the next daemon and loses
nothing."""

POLL_S: Final = 0.02
"""Seconds between checks for first requests: a few passes of the event loop."""


class TrackedConnection(Protocol):
    """A connection, as the registry uses it."""

    has_sent_request: bool

    def close_when_idle(self) -> None:
        """Close the connection as soon as no request is being answered."""

    def recheck_access(self, access: Access) -> None:
        """Close the connection if its client may no longer use the socket."""


class ConnectionRegistry:
    """Registry of the connections to the inference sockets."""

    def __init__(self) -> None:
        self._connections: set[TrackedConnection] = set()
        self._is_closing = False
        self._one_closed = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        """Count the connections."""
        return len(self._connections)

    @contextmanager
    def track(self, connection: TrackedConnection) -> Iterator[None]:
        """Register a connection while inside; if all are being closed, close it, too."""
        self._connections.add(connection)
        if self._is_closing:
            connection.close_when_idle()
        try:
            yield
        finally:
            self._connections.discard(connection)
            self._one_closed.unpark_all()

    def recheck_access(self, access: Access) -> None:
        """Close the connections of clients that may no longer use their sockets."""
        for connection in self._connections:
            connection.recheck_access(access)

    async def wait_first_requests(self, *, by: float) -> None:
        """Wait until every connection has sent a request, or there is no more time.

        Args:
            by: on trio's clock, in seconds; no longer than ``FIRST_REQUEST_S`` in any case.
        """
        with trio.move_on_at(min(by, trio.current_time() + FIRST_REQUEST_S)):
            all_have_sent = False
            while not all_have_sent:
                await trio.sleep(POLL_S)
                all_have_sent = all(each.has_sent_request for each in self._connections)

    def close_when_idle(self) -> None:
        """Close present and future connections as soon as their requests are answered."""
        self._is_closing = True
        for connection in self._connections:
            connection.close_when_idle()

    async def wait_closed(self, *, by: float) -> None:
        """Wait until all connections are closed, up to a deadline on trio's clock."""
        with trio.move_on_at(by):
            while self._connections:
                await self._one_closed.park()
