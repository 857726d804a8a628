"""Requests over HTTP, each on a connection of its own."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import httpcore2

from inferd import __version__
from inferd.client.callback.http_client import (
    Cancellation,
    HttpRequest,
    HttpResponse,
)
from inferd.client.callback.openai_dialect import ANSWER_MAX_BYTES
from inferd.client.connection.http_socket import HttpSocket
from inferd.client.core.bridge_calls import OK, bridge_address

CONNECT_S: Final = 10.0
"""Seconds for connecting to a server."""


class HttpConnections:
    """Sends requests over HTTP; no redirect is followed, no proxy used.

    Args:
        url: of the server: of this machine, or one with ``https``.
        tls: verifies it; ``None`` for the certificates of this machine.

    Raises:
        ValueError: the address is none.
    """

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        self._socket = bridge_address(url).socket
        self._tls = tls

    def send(self, request: HttpRequest, should_cancel: Cancellation) -> HttpResponse:
        """Send a request; return the whole answer.

        Raises:
            OSError: as ``send_streaming``.
        """
        body = bytearray()
        response = self.send_streaming(request, body.extend, should_cancel)
        return HttpResponse(status=response.status, body=bytes(body) or response.body)

    def send_streaming(
        self,
        request: HttpRequest,
        on_chunk: Callable[[bytes], None],
        should_cancel: Cancellation,
    ) -> HttpResponse:
        """Send a request; pass the bytes of an answer of status 200 on as they come.

        Raises:
            ConnectionRefusedError: nothing listens there.
            ConnectionError: the connection broke.
            TimeoutError: nothing came in time.
        """
        url = httpcore2.URL(request.url)
        note = HttpSocket()
        with (
            _telling_failures(),
            httpcore2.HTTPConnection(
                url.origin, ssl_context=self._tls, uds=self._socket
            ) as connection,
            should_cancel.watched(note.interrupt),
        ):
            try:
                response = connection.handle_request(_sent(request, url, note))
                return _read(response, on_chunk, should_cancel)
            except (httpcore2.NetworkError, httpcore2.ProtocolError):
                if should_cancel():
                    return HttpResponse()
                raise


def _sent(
    request: HttpRequest, url: httpcore2.URL, note: HttpSocket
) -> httpcore2.Request:
    port = b"" if url.port is None else b":%d" % url.port
    host = b"[%b]" % url.host if b":" in url.host else url.host
    silence_s = request.timeout_s
    return httpcore2.Request(
        "POST",
        url,
        headers=[
            (b"host", host + port),
            (b"user-agent", f"inferd/{__version__}".encode()),
            (b"content-length", str(len(request.body)).encode()),
            *((name.encode(), value.encode()) for name, value in request.headers),
        ],
        content=request.body,
        extensions={
            "timeout": {
                "connect": min(silence_s, CONNECT_S),
                "read": silence_s,
                "write": silence_s,
            },
            "trace": note.note,
        },
    )


def _read(
    response: httpcore2.Response,
    on_chunk: Callable[[bytes], None],
    should_cancel: Cancellation,
) -> HttpResponse:
    failure = bytearray()
    n_bytes = 0
    try:
        for data in response.iter_stream():
            n_bytes += len(data)
            if n_bytes > ANSWER_MAX_BYTES:
                raise ConnectionError("the answer is too long")
            if response.status == OK:
                on_chunk(data)
            else:
                failure += data
            if should_cancel():
                break
    finally:
        response.close()
    return HttpResponse(status=response.status, body=bytes(failure))


@contextmanager
def _telling_failures() -> Iterator[None]:
    try:
        yield
    except httpcore2.ConnectError as error:
        raise ConnectionRefusedError(str(error)) from error
    except httpcore2.TimeoutException as error:
        raise TimeoutError(str(error)) from error
    except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        raise ConnectionError(str(error)) from error
