"""A proxy on loopback that passes one answer on, and breaks it as it is told."""

import select
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.fakes.remote_engine import read_request, status

READ_BYTES: Final = 65536
PATIENCE_S: Final = 120.0
"""Seconds that a read may take: a part that fails ends."""
RETRY_AFTER_S: Final = 7


class Fault(StrEnum):
    """What becomes of an answer, from some byte on if it has any."""

    NONE = "none"
    RESET = "reset"
    CLOSE = "close"
    STALL = "stall"
    GARBAGE = "garbage"
    RATE_LIMIT = "status_429"
    FAILURE = "status_500"


@dataclass(frozen=True)
class Break:
    """One fault."""

    fault: Fault = Fault.NONE
    at: int = 0
    """Bytes of the answer before it."""
    garbage: bytes = b""


WHOLE: Final = Break()
STATUSES: Final = {
    Fault.RATE_LIMIT: (429, f"Retry-After: {RETRY_AFTER_S}"),
    Fault.FAILURE: (500, "X-Reason: fault"),
}


class FaultyProxy:
    """Listens in front of one server; has a connection for each request.

    Args:
        upstream: the port of the server, or the path of its socket.
        path: to listen at, where it stands for a daemon's socket; else it is a port.
    """

    def __init__(self, upstream: int | Path, path: Path | None = None) -> None:
        self._upstream = upstream
        self._has_lines = path is not None
        if path is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(path))
            self._listener.listen()
        self._connections: set[socket.socket] = set()
        self.next = WHOLE
        """What becomes of the answers from now on."""
        self.n_requests = 0
        self.n_bytes = 0
        """Of the latest answer that was passed on whole."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._listener.getsockname()[1]
        return port

    def close(self) -> None:
        """Listen no more, and end all connections."""
        for sock in (self._listener, *self._connections):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.add(connection)
                serve = threading.Thread(
                    target=self._serve, args=(connection,), daemon=True
                )
                serve.start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(PATIENCE_S)
        with suppress(OSError), client:
            request = self._read(client)
            self.n_requests += 1
            told = self.next
            if told.fault in STATUSES:
                code, header = STATUSES[told.fault]
                client.sendall(status(code, {"error": {"message": "fault"}}, header))
                return
            self._pass_on(client, request, told)
        self._connections.discard(client)

    def _read(self, client: socket.socket) -> bytes:
        if self._has_lines:
            return client.makefile("rb").readline()
        head, body = read_request(client)
        lines = head.split(b"\r\n")
        kept = [each for each in lines if not each.lower().startswith(b"connection:")]
        return b"\r\n".join([*kept, b"Connection: close", b"", body])

    def _pass_on(self, client: socket.socket, request: bytes, told: Break) -> None:
        left = told.at if told.fault is not Fault.NONE else None
        n_bytes = 0
        with self._connect() as server:
            server.sendall(request)
            if self._has_lines:
                server.shutdown(socket.SHUT_WR)
            while data := server.recv(READ_BYTES):
                if left is not None and n_bytes + len(data) > left:
                    client.sendall(data[: left - n_bytes])
                    break
                n_bytes += len(data)
                if told is WHOLE:  # known by the time that the client has it
                    self.n_bytes = n_bytes
                client.sendall(data)
        _break(client, told)

    def _connect(self) -> socket.socket:
        if isinstance(self._upstream, int):
            return socket.create_connection(
                ("127.0.0.1", self._upstream), timeout=PATIENCE_S
            )
        server = socket.socket(socket.AF_UNIX)
        server.settimeout(PATIENCE_S)
        server.connect(str(self._upstream))
        return server


def _break(client: socket.socket, told: Break) -> None:
    """Do what breaks the answer; the connection is closed after it."""
    match told.fault:
        case Fault.RESET:
            if client.family == socket.AF_INET:
                linger = struct.pack("ii", 1, 0)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        case Fault.GARBAGE:
            client.sendall(told.garbage)
        case Fault.STALL:
            _wait_for_hang_up(client)
        case _:
            pass


def _wait_for_hang_up(client: socket.socket) -> None:
    """Wait until a client has closed its connection, or no longer than a read may take."""
    if client.family == socket.AF_UNIX:  # of lines, whose sender has closed its half
        poll = select.poll()
        poll.register(client, select.POLLHUP)
        poll.poll(PATIENCE_S * 1000)
        return
    while client.recv(READ_BYTES):
        pass


def faults_of(*, has_lines: bool) -> Sequence[Fault]:
    """List the faults that a server may have: a socket with lines has no status."""
    all_of_them = [each for each in Fault if each is not Fault.NONE]
    if not has_lines:
        return all_of_them
    return [each for each in all_of_them if each not in STATUSES]
