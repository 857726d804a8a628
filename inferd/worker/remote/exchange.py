"""HTTP with one remote: a request, and the events of its answer."""

import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import httpcore2
import trio

from inferd import __version__
from inferd.config.kinds.remote import RemoteSettings
from inferd.config.kinds.remote_address import RemoteAddress
from inferd.config.kinds.remote_limits import (
    IDLE_CONNECTION_S,
    IDLE_CONNECTIONS,
    MAX_CONNECTIONS,
    MAX_HEAD_ERROR_BYTES,
)
from inferd.worker.remote.api import ErrorReader
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.network import ConfiguredNetwork, RefusedAddressError
from inferd.worker.remote.server_sent_events import EventSplitter

_OK: Final = 200
_EVENTS: Final = "text/event-stream"


class AnswerDeadline:
    """How long an answer may take; the caller tells it of every token.

    Args:
        settings: with the seconds.
        scope: is cancelled when they are over.
    """

    def __init__(self, settings: RemoteSettings, scope: trio.CancelScope) -> None:
        self._settings = settings
        self._scope = scope
        self._ends_at = trio.current_time() + settings.answer_timeout_s
        self.has_begun = False
        """Whether there was a token."""
        self._wait(settings.connect_timeout_s + settings.first_token_timeout_s)

    def token_received(self) -> None:
        """Note that the answer goes on."""
        self.has_begun = True
        self._wait(self._settings.stall_timeout_s)

    @property
    def reason(self) -> str:
        """What took too long."""
        if trio.current_time() >= self._ends_at:
            return f"{self._settings.answer_timeout_s:g} s are over"
        if self.has_begun:
            return f"nothing came for {self._settings.stall_timeout_s:g} s"
        return f"no answer within {self._settings.first_token_timeout_s:g} s"

    def _wait(self, seconds: float) -> None:
        self._scope.deadline = min(trio.current_time() + seconds, self._ends_at)


class RemoteConnections:
    """The connections to one remote.

    Redirects, proxies of the environment, cookies and compression are not known here: the
    library below does nothing of the kind.

    Args:
        remote: where it is.
        settings: the bounds.
        key: sent with each request, if there is one.
        tls: verifies it.
        errors: reads what its API says of errors.
    """

    def __init__(
        self,
        remote: RemoteAddress,
        settings: RemoteSettings,
        *,
        key: str,
        tls: ssl.SSLContext | None,
        errors: ErrorReader,
    ) -> None:
        self._settings = settings
        self._errors = errors
        scheme = "http" if remote.socket is not None else remote.scheme
        port = f":{remote.port}" if remote.port else ""
        self._url = f"{scheme}://{remote.shown_host}{port}{remote.path}"
        self._headers: dict[bytes | str, bytes | str] = {
            "Host": f"{remote.shown_host}{port}",
            "User-Agent": f"inferd/{__version__}",
            "Accept": f"{_EVENTS}, application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_CONNECTION_S,
            retries=0,
            uds=remote.socket,
            network_backend=ConfiguredNetwork(remote),
        )

    @asynccontextmanager
    async def stream_events(
        self, path: str, body: bytes
    ) -> AsyncIterator[tuple[AsyncGenerator[bytes, None], AnswerDeadline]]:
        """Send a request; give the data of the events of its answer.

        Args:
            path: below the remote's own.
            body: JSON.

        Raises:
            RemoteError: it failed, inside the block as well.

        Cancellation: closes the connection, by which the remote ends its work.
        """
        with trio.CancelScope() as scope:
            deadline = AnswerDeadline(self._settings, scope)
            try:
                async with self._pool.stream(
                    "POST",
                    f"{self._url}{path}",
                    headers=self._headers,
                    content=body,
                    extensions={
                        "timeout": {"connect": self._settings.connect_timeout_s}
                    },
                ) as response:
                    await self._check_head(response)
                    yield self._events(response), deadline
            except RefusedAddressError as error:
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

    async def _events(
        self, response: httpcore2.Response
    ) -> AsyncGenerator[bytes, None]:
        splitter = EventSplitter(self._settings.max_event_bytes)
        n_left = self._settings.max_answer_bytes
        async for data in response.aiter_stream():
            n_left -= len(data)
            if n_left < 0:
                raise RemoteError(
                    f"the remote's answer has over {self._settings.max_answer_bytes} bytes"
                )
            for event in splitter.feed(data):
                yield event

    async def _check_head(self, response: httpcore2.Response) -> None:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise RemoteError(
                "the remote compresses its answer, which nobody asked for"
            )
        is_stream = headers.get("content-type", "").lower().startswith(_EVENTS)
        if response.status == _OK and is_stream:
            return
        body = await _read_beginning(response)
        if response.status != _OK:
            raise self._errors.of_status(response.status, headers, body, time.time())
        if b'"error"' in body:
            raise self._errors.of_answer(body)
        raise RemoteError("the remote does not stream its answer")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


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
