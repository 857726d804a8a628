"""Which connections are kept for the next request: a decision without I/O."""

from collections import OrderedDict
from typing import Final, Generic, TypeVar

MAX_CONNECTIONS: Final = 16
"""Connections of one client unless the caller says otherwise, and so its requests that run at
once; further ones wait for a connection. A daemon takes 1024 from all of its clients."""

K = TypeVar("K")
C = TypeVar("C")


class IdleConnections(Generic[K, C]):
    """Connections between two requests, by the kind of their requests.

    Args:
        limit: connections at most, those in use included.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._idle: OrderedDict[int, tuple[K, C]] = OrderedDict()
        self._n_kept = 0
        self._n_used = 0

    def take(self, kind: K) -> tuple[C | None, C | None]:
        """Begin to use a connection.

        Returns:
            One of this kind, the last one that was used, or ``None`` to make one; and a
            connection to close, so that the limit holds.
        """
        self._n_used += 1
        for number in reversed(self._idle):
            if self._idle[number][0] == kind:
                return self._idle.pop(number)[1], None
        if self._idle and self._n_used + len(self._idle) > self._limit:
            return None, self._idle.popitem(last=False)[1][1]
        return None, None

    def give_back(self, kind: K, connection: C) -> None:
        """Keep a connection for the next request."""
        self.discard()
        self._n_kept += 1
        self._idle[self._n_kept] = (kind, connection)

    def discard(self) -> None:
        """Stop using a connection that is not to be kept."""
        self._n_used -= 1

    def clear(self) -> list[C]:
        """Return all, to be closed."""
        found = [connection for _, connection in self._idle.values()]
        self._idle.clear()
        return found
