"""The connections to one remote, of which the idle ones serve further requests.

The pool of the library below looks at each of its connections for every request, which takes
a system call for each that is idle: at 32 requests at once more than all else.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpcore2
import trio


class KeptConnections:
    """Makes connections, and keeps them for a while once a request is over.

    There is one for each request that runs, of which the daemon bounds the number.

    Args:
        make: makes one that is not connected yet.
        max_idle: connections that are kept.
    """

    def __init__(
        self, make: Callable[[], httpcore2.AsyncHTTPConnection], max_idle: int
    ) -> None:
        self._make = make
        self._max_idle = max_idle
        self._idle: deque[httpcore2.AsyncHTTPConnection] = deque()
        """The one that was used last is the last."""

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[httpcore2.AsyncHTTPConnection]:
        """Give a connection for one request, kept or new.

        Cancellation: closes it, as an error does and an answer that is not read to its end.
        """
        connection = await self._take()
        try:
            yield connection
        finally:
            if connection.is_available() and len(self._idle) < self._max_idle:
                self._idle.append(connection)
            else:
                await _close(connection)

    async def aclose(self) -> None:
        """Close the idle ones."""
        while self._idle:
            await _close(self._idle.pop())

    async def _take(self) -> httpcore2.AsyncHTTPConnection:
        while self._idle and self._idle[0].has_expired():
            await _close(self._idle.popleft())
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
            await _close(connection)
        return self._make()


async def _close(connection: httpcore2.AsyncHTTPConnection) -> None:
    with trio.CancelScope(shield=True):
        await connection.aclose()
