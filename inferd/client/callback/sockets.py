"""Requests over the daemon's sockets, each on a connection of its own."""

from collections.abc import Callable, Collection
from os import PathLike
from pathlib import Path

from inferd.client.callback.http_client import (
    Cancellation,
    HttpRequest,
    HttpResponse,
)
from inferd.client.connection.buffered_socket import BufferedSocket
from inferd.client.connection.sync import connect
from inferd.client.core.failures import ConnectionLostError, NoDaemonError

_SCHEME = "unix:"


class SocketClient:
    """Sends the lines of requests to a daemon; a connection that is closed cancels its own.

    Args:
        directory: of the sockets; ``None`` for the default places.
        trusted_uids: users whose processes may answer, besides root, this user and the
            service's.
    """

    def __init__(
        self,
        directory: str | PathLike[str] | None = None,
        trusted_uids: Collection[int] = (),
    ) -> None:
        self._directory = None if directory is None else Path(directory)
        self._trusted_uids = trusted_uids

    def send(self, request: HttpRequest, should_cancel: Cancellation) -> HttpResponse:
        """Send a request; return all bytes until no more is wanted."""
        body = bytearray()
        response = self.send_streaming(request, body.extend, should_cancel)
        return HttpResponse(status=response.status, body=bytes(body))

    def send_streaming(
        self,
        request: HttpRequest,
        on_chunk: Callable[[bytes], None],
        should_cancel: Cancellation,
    ) -> HttpResponse:
        """Send a request; pass bytes on until no more is wanted, or the daemon has ended.

        Raises:
            ConnectionRefusedError: no daemon answers.
            ConnectionError: the connection broke.
            TimeoutError: nothing came in time.
            UntrustedServerError: an untrusted user listens.
        """
        leaf = request.url.removeprefix(_SCHEME)
        try:
            sock = connect(
                leaf,
                self._directory,
                trusted_uids=self._trusted_uids,
                timeout_s=request.timeout_s,
            )
        except NoDaemonError as error:
            raise ConnectionRefusedError(str(error)) from error
        connection = BufferedSocket(sock, request.timeout_s)
        try:
            with should_cancel.watched(connection.interrupt):
                connection.send_line(request.body)
                while not should_cancel() and (data := connection.read()) != b"":
                    if data:
                        on_chunk(data)
        except ConnectionLostError as error:
            if not should_cancel():
                raise ConnectionError(str(error)) from error
        finally:
            connection.close()
        return HttpResponse()
