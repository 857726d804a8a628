"""Connections to the daemon that are kept for the next request."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inferd.client.asynchronous import AsyncFrameClient
from inferd.limits.bridge import KEPT_CLIENTS


class ClientPool:
    """Gives each request a client of its own, which may have served another one before.

    A client is kept where its answer came to its end. One that failed or was interrupted is
    closed, and a connection that the daemon has closed meanwhile is opened anew: who connects
    is checked for each connection.

    Args:
        directory: of the daemon's sockets; ``None`` for the default ones.

    Bounds:
        Descriptors: a connection for each request that runs, and those of ``KEPT_CLIENTS``.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._kept: list[AsyncFrameClient] = []
        self._running: set[AsyncFrameClient] = set()
        self._is_closed = False

    def close(self) -> None:
        """Close all clients, those of running requests too, and all further ones."""
        self._is_closed = True
        for client in (*self._running, *self._kept):
            client.close()

    @contextmanager
    def client(self) -> Iterator[AsyncFrameClient]:
        """Give a client for one request; if the block raises, its connections are closed."""
        client = self._kept.pop() if self._kept else AsyncFrameClient(self._directory)
        self._running.add(client)
        is_whole = False
        try:
            if self._is_closed:
                client.close()
            client.drop_ended()
            yield client
            is_whole = True
        finally:
            self._running.discard(client)
            if is_whole and len(self._kept) < KEPT_CLIENTS:
                self._kept.append(client)
            else:
                client.close()
