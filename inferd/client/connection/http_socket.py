"""The socket of an HTTP connection, by which another thread can end it."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import httpcore2

_CONNECTED: Final = (
    "connect_tcp.complete",
    "connect_unix_socket.complete",
    "start_tls.complete",
)
"""The steps of the library that give a socket; the last of them has the one that is used."""


class HttpSocket:
    """Keeps the socket that the library connects; ``note`` is its ``trace``.

    Ownership: one thread uses the connection; any may ``interrupt`` it.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._is_interrupted = False

    def note(self, event: str, info: Mapping[str, object]) -> None:
        """Take note of a step of the library."""
        if event.endswith(_CONNECTED):
            stream = info["return_value"]
            if isinstance(stream, httpcore2.NetworkStream):
                self._socket = stream.get_extra_info("socket")
        if self._is_interrupted:
            self.interrupt()

    def interrupt(self) -> None:
        """End the connection and what waits for it, from any thread."""
        self._is_interrupted = True
        if self._socket is not None:
            with suppress(OSError):  # it has ended already
                self._socket.shutdown(socket.SHUT_RDWR)
