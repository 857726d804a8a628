"""Connections to the daemon for the jobs of a command."""

import threading
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Final, TypeVar

from inferd.client.core.failures import ClientError
from inferd.client.core.retries import Retries
from inferd.client.sync import FrameClient

R = TypeVar("R")

MAX_RETRIES: Final = 100
"""Times that a request is sent again while the daemon is busy: a batch can wait."""


class JobClients:
    """A client for each thread that asks.

    Args:
        directory: of the daemon's sockets; ``None`` for the default ones.

    Ownership: threads share it; ``close`` ends what they wait for.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._local = threading.local()
        self._lock = threading.Lock()
        self._clients: list[FrameClient] = []
        self._is_closed = False

    def ask(self, call: Callable[[FrameClient], R]) -> R:
        """Ask by this thread's client; again while the daemon is busy.

        Raises:
            ClientError: the daemon refused the request, or its answer failed.
        """
        retries = Retries(MAX_RETRIES)
        while True:
            try:
                return call(self._client())
            except ClientError as error:
                pause = None if self._is_closed else retries.pause_after(error)
                if pause is None:
                    raise
            sleep(pause)

    def close(self) -> None:
        """Close all clients; threads that wait for an answer get an error."""
        with self._lock:
            self._is_closed = True
            for client in self._clients:
                client.close()

    def _client(self) -> FrameClient:
        client: FrameClient | None = getattr(self._local, "client", None)
        if client is None:
            with self._lock:
                if self._is_closed:
                    raise ClientError("the command ends")
                client = FrameClient(self._directory)
                self._clients.append(client)
            self._local.client = client
        return client
