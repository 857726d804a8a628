"""The blocking client."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from inferd.client.discovery import (
    NoDaemonError,
    nobody_at,
    pauses,
    socket_paths,
)
from inferd.client.exchange import (
    ClientError,
    ConnectionLostError,
    Exchange,
    RequestFailedError,
    StatusStream,
)
from inferd.limits import READ_BYTES
from inferd.paths import ADMIN_SOCKET, INFER_SOCKET
from inferd.wire.requests import GenerateRequest
from inferd.wire.responses import DoneFrame, ErrorFrame, TokenFrame
from inferd.wire.status import AnyStatus

READY = "ready"


class Client:
    """A connection to the inference socket, for one request after another.

    Args:
        directory: where the sockets are; by default, where a daemon would put them.
        timeout_s: seconds of silence before a call gives up with ``TimeoutError``.

    Raises:
        NoDaemonError: nobody answers.

    Ownership: ``close`` it, or use it in a ``with`` block; closing cancels a request.
    """

    def __init__(
        self, directory: Path | None = None, *, timeout_s: float | None = None
    ) -> None:
        self._sock = connect(INFER_SOCKET, directory)
        self._sock.settimeout(timeout_s)
        self._exchange = Exchange()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def generate(self, request: GenerateRequest) -> Iterator[TokenFrame | DoneFrame]:
        """Send a request; give its frames as they come, ``done`` last.

        Raises:
            RequestFailedError: the daemon ended it with an error frame.
            ConnectionLostError: the connection ended before it did.
        """
        data = self._exchange.start(request)
        with suppress(ConnectionError):  # its last words may still be there
            self._sock.sendall(data)
        while not self._exchange.is_over:
            for response in self._exchange.feed(self._read()):
                if isinstance(response, ErrorFrame):
                    raise RequestFailedError(response)
                yield response

    def _read(self) -> bytes:
        try:
            return self._sock.recv(READ_BYTES)
        except ConnectionError as error:
            raise ConnectionLostError(str(error)) from error


def connect(leaf: str, directory: Path | None = None) -> socket.socket:
    """Connect to a socket of the daemon.

    Raises:
        NoDaemonError: there is none, it is not ours to use, or nobody listens.
    """
    tried: dict[Path, str] = {}
    for path in socket_paths(leaf, directory):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(path))
        except OSError as error:
            sock.close()
            tried[path] = error.strerror or str(error)
        else:
            return sock
    raise nobody_at(tried)


def watch_status(
    directory: Path | None = None, *, timeout_s: float | None = None
) -> Iterator[tuple[bytes, AnyStatus]]:
    """Give each frame of the admin socket, as bytes and as read, until it ends.

    Raises:
        NoDaemonError: nobody answers.
        ProtocolError: what answers is no daemon.
        TimeoutError: ``timeout_s`` seconds of silence.
    """
    with connect(ADMIN_SOCKET, directory) as sock:
        sock.settimeout(timeout_s)
        frames = StatusStream()
        while data := sock.recv(READ_BYTES):
            yield from frames.feed(data)


def wait_until_ready(
    directory: Path | None = None,
    *,
    timeout_s: float,
    on_status: Callable[[AnyStatus], None] = lambda _: None,
    is_hopeless: Callable[[], bool] = lambda: False,
) -> None:
    """Wait for a daemon that is starting.

    Args:
        directory: where its sockets are or will be.
        timeout_s: seconds after which to give up.
        on_status: told every status on the way.
        is_hopeless: asked now and then whether to give up.

    Raises:
        NoDaemonError: it was not ready in time, or there is no hope.
    """
    deadline = time.monotonic() + timeout_s
    for pause in pauses():
        last = "the daemon closed the admin socket"
        try:
            for _, status in watch_status(directory, timeout_s=timeout_s):
                on_status(status)
                if status.status == READY:
                    return
                if time.monotonic() > deadline:
                    last = f"the daemon is still {status.status}"
                    break
        except (OSError, NoDaemonError, ClientError) as error:
            last = str(error)
        if is_hopeless() or time.monotonic() > deadline:
            raise NoDaemonError(last)
        time.sleep(pause)
