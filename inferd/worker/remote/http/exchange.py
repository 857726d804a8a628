"""HTTP with one remote: a request, and the events of its answer."""

import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import httpcore2
import trio

from inferd import __version__
from inferd.config.kinds.remote import RemoteSettings
from inferd.config.kinds.remote_address import RemoteAddress
from inferd.config.kinds.remote_limits import (
    IDLE_CONNECTION_S,
    IDLE_CONNECTIONS,
    MAX_HEAD_ERROR_BYTES,
)
from inferd.wire.requests import VIA_HEADER
from inferd.worker.remote.api import AnswerForm, ErrorReader, RemoteRequest
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.http.deadline import AnswerDeadline
from inferd.worker.remote.http.json_lines import JsonLineSplitter
from inferd.worker.remote.http.kept_connections import KeptConnections
from inferd.worker.remote.http.network import ConfiguredNetwork, RefusedAddressError
from inferd.worker.remote.http.server_sent_events import EventSplitter
from inferd.worker.remote.sockets.peer import UntrustedListenerError

_OK: Final = 200


class RemoteConnections:
    """The connections to one remote.

    Redirects, proxies of the environment, cookies and compression are not known here: the
    library below does nothing of the kind.

    Args:
        remote: where it is.
        settings: the bounds.
        headers: of each request, such as the one with the key.
        tls: verifies it.
        errors: reads what its API says of errors.
    """

    def __init__(
        self,
        remote: RemoteAddress,
        settings: RemoteSettings,
        *,
        headers: Mapping[str, str],
        tls: ssl.SSLContext | None,
        errors: ErrorReader,
    ) -> None:
        self._settings = settings
        self._errors = errors
        scheme = "http" if remote.socket is not None else remote.scheme
        port = f":{remote.port}" if remote.port else ""
        self._root = f"{scheme}://{remote.shown_host}{port}"
        self._path = remote.path
        self._headers: dict[bytes | str, bytes | str] = {
            "Host": f"{remote.shown_host}{port}",
            "User-Agent": f"inferd/{__version__}",
            "Accept-Encoding": "identity",
        }
        self._headers.update(headers.items())
        make = partial(
            httpcore2.AsyncHTTPConnection,
            httpcore2.URL(self._root).origin,
            ssl_context=tls,
            keepalive_expiry=IDLE_CONNECTION_S,
            retries=0,
            uds=remote.socket,
            network_backend=ConfiguredNetwork(remote, settings.trusted_uids),
        )
        self._connections = KeptConnections(make, IDLE_CONNECTIONS)

    @asynccontextmanager
    async def ask(
        self, request: RemoteRequest
    ) -> AsyncIterator[tuple[AsyncGenerator[bytes, None], AnswerDeadline]]:
        """Send a request; give the parts of its answer, as its form has them.

        Raises:
            RemoteError: it failed, inside the block as well.

        Cancellation: closes the connection, by which the remote ends its work.
        """
        with trio.CancelScope() as scope:
            deadline = AnswerDeadline(self._settings, scope)
            try:
                async with (
                    self._connections.taken() as connection,
                    connection.stream(
                        "POST" if request.body else "GET",
                        self._url_of(request),
                        headers=self._headers_of(request),
                        content=request.body or None,
                        extensions={
                            "timeout": {"connect": self._settings.connect_timeout_s}
                        },
                    ) as response,
                ):
                    await self._check_head(response, request.form)
                    yield self._parts(response, request.form), deadline
            except (RefusedAddressError, UntrustedListenerError) as error:
                raise RemoteError(f"the remote is refused: {error}") from error
            except httpcore2.ConnectTimeout as error:
                seconds = self._settings.connect_timeout_s
                text = f"the remote cannot be reached within {seconds:g} s"
                raise RemoteError(text) from error
            except ssl.SSLError as error:
                raise RemoteError(_tls_reason(error)) from error
            except httpcore2.ConnectError as error:
                raise RemoteError(_connect_reason(error)) from error
            except (
                httpcore2.NetworkError,
                httpcore2.ProtocolError,
                httpcore2.TimeoutException,
                OSError,
            ) as error:
                what = "in its middle" if deadline.has_begun else "before it began"
                raise RemoteError(f"the remote's answer broke off {what}") from error
        if scope.cancelled_caught:
            raise RemoteError(f"the remote is too slow: {deadline.reason}")

    def _url_of(self, request: RemoteRequest) -> str:
        return f"{self._root}{'' if request.is_at_root else self._path}{request.path}"

    def _headers_of(self, request: RemoteRequest) -> dict[bytes | str, bytes | str]:
        accepted = dict.fromkeys((request.form.value, AnswerForm.DOCUMENT.value))
        headers = {**self._headers, "Accept": ", ".join(accepted)}
        if request.body:
            headers["Content-Type"] = request.content_type
        if request.via:
            headers[VIA_HEADER] = ", ".join(request.via)
        return headers

    def _parts(
        self, response: httpcore2.Response, form: AnswerForm
    ) -> AsyncGenerator[bytes, None]:
        match form:
            case AnswerForm.EVENTS:
                return self._split(
                    response, EventSplitter(self._settings.max_event_bytes)
                )
            case AnswerForm.LINES:
                return self._split(
                    response, JsonLineSplitter(self._settings.max_event_bytes)
                )
            case AnswerForm.DOCUMENT:
                return self._whole(response)

    async def _split(
        self,
        response: httpcore2.Response,
        splitter: EventSplitter | JsonLineSplitter,
    ) -> AsyncGenerator[bytes, None]:
        async for data in self._bounded(response):
            for part in splitter.feed(data):
                yield part
        for part in splitter.finish():
            yield part

    async def _whole(self, response: httpcore2.Response) -> AsyncGenerator[bytes, None]:
        body = bytearray()
        async for data in self._bounded(response):
            body += data
        yield bytes(body)

    async def _bounded(
        self, response: httpcore2.Response
    ) -> AsyncGenerator[bytes, None]:
        n_left = self._settings.max_answer_bytes
        async for data in response.aiter_stream():
            n_left -= len(data)
            if n_left < 0:
                raise RemoteError(
                    f"the remote's answer has over {self._settings.max_answer_bytes} bytes"
                )
            yield data

    async def _check_head(self, response: httpcore2.Response, form: AnswerForm) -> None:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise RemoteError(
                "the remote compresses its answer, which nobody asked for"
            )
        is_form = headers.get("content-type", "").lower().startswith(form.value)
        if response.status == _OK and is_form:
            return
        body = await _read_beginning(response)
        if response.status != _OK:
            raise self._errors.of_status(response.status, headers, body, time.time())
        if b'"error"' in body:
            raise self._errors.of_answer(body)
        if form is AnswerForm.DOCUMENT:
            raise RemoteError("the remote's answer is no JSON document")
        raise RemoteError("the remote does not stream its answer")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._connections.aclose()


async def _read_beginning(response: httpcore2.Response) -> bytes:
    body = bytearray()
    async for data in response.aiter_stream():
        body += data
        if len(body) >= MAX_HEAD_ERROR_BYTES:
            break
    return bytes(body[:MAX_HEAD_ERROR_BYTES])


def _connect_reason(error: httpcore2.ConnectError) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return _tls_reason(cause)
        if isinstance(cause, OSError) and cause.strerror:
            return f"the remote cannot be reached: {cause.strerror}"
        cause = cause.__cause__ or cause.__context__
    return f"the remote cannot be reached: {error}"


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the remote's certificate is refused: {error.verify_message}"
    return "the remote's TLS failed"
