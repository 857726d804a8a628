"""What HTTP calls of threads and of tasks have in common: addresses, heads, failures."""

import errno
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import httpcore2

from inferd import __version__
from inferd.client.core.bridge_calls import (
    BridgeCall,
    auth_headers,
    bridge_address,
)
from inferd.client.core.failures import (
    ConnectionLostError,
    NoDaemonError,
    RequestTimeout,
    UnreadError,
)
from inferd.client.core.live_call import LiveCall
from inferd.client.exchange import Exchange
from inferd.client.frames import ClientBlocksDone
from inferd.client.library.settings import ClientSettings
from inferd.wire.requests import Request
from inferd.wire.responses import Response, UsageV2

CONNECT_S: Final = 10.0
"""Seconds for connecting to a bridge: another machine that is off is told before long."""
IDLE_S: Final = 30.0
"""Seconds after which an idle connection is not used again; bridges close theirs after 75."""


class BridgePlace:
    """Where a bridge is, and who asks it.

    Args:
        settings: with the ``url``.

    Raises:
        ValueError: the address or the token is none.
    """

    def __init__(self, settings: ClientSettings) -> None:
        address = bridge_address(settings.url or "")
        scheme = "http" if address.socket is not None else address.scheme
        port = f":{address.port}" if address.port else ""
        host = f"{address.shown_host}{port}"
        self._root = f"{scheme}://{host}{address.path}"
        self._headers = [
            (b"host", host.encode()),
            (b"user-agent", f"inferd/{__version__}".encode()),
            (b"accept-encoding", b"identity"),
            *auth_headers(settings.token),
        ]
        self._timeout = settings.timeout
        self.name = str(address)
        self.socket = address.socket
        self.origin = httpcore2.URL(self._root).origin
        self.tls: ssl.SSLContext | None = settings.tls
        self.host = self.origin.host.decode()
        self.port = self.origin.port
        self.has_tls = scheme == "https"
        self.connect_s = min(settings.timeout or CONNECT_S, CONNECT_S)
        """Seconds for connecting."""

    def tls_context(self) -> ssl.SSLContext:
        """Return what verifies the bridge, where the library does not choose it."""
        context = self.tls or httpcore2.default_ssl_context()
        context.set_alpn_protocols(["http/1.1"])
        return context

    def live_call(self, exchange: Exchange[Request, Response]) -> LiveCall:
        """Return a call whose sound is sent while its answer comes."""
        return LiveCall(self._root, self._headers, exchange)

    def request(self, call: BridgeCall, trace: object = None) -> httpcore2.Request:
        """Return a call as the library sends it.

        Args:
            call: to send.
            trace: is told of its steps; ``None`` for nothing.
        """
        extensions: dict[str, object] = {
            "timeout": {
                "connect": self.connect_s,
                "read": self._timeout,
                "write": self._timeout,
            }
        }
        if trace is not None:
            extensions["trace"] = trace
        headers = [
            *self._headers,
            (b"content-type", call.content_type.encode()),
            (b"content-length", str(len(call.body)).encode()),
        ]
        return httpcore2.Request(
            "POST",
            self._root + call.path,
            headers=headers,
            content=call.body,
            extensions=extensions,
        )

    @contextmanager
    def telling_failures(self) -> Iterator[None]:
        """Turn errors of the library into those of the client.

        Raises:
            ClientError: the block raised one of the library's.
        """
        try:
            yield
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            told = str(error) or "it takes too long"
            raise NoDaemonError(f"no bridge answers at {self.name}: {told}") from error
        except httpcore2.TimeoutException as error:
            raise self.timeout() from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            if isinstance(error, httpcore2.WriteError) or _is_reset(error):
                text = "the bridge did not read the request"
                raise UnreadError(text) from error
            raise ConnectionLostError(str(error) or "the connection broke") from error

    def timeout(self) -> RequestTimeout:
        """Return the failure of a request for which nothing comes."""
        seconds = self._timeout or CONNECT_S
        return RequestTimeout(f"no data from the bridge for {seconds:g} s")


def _is_reset(error: BaseException) -> bool:
    """Tell whether a connection was closed at its other end with unread bytes in it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno == errno.ECONNRESET:
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def cancelled_frame(request: Request, n_frames: int) -> Response:
    """Return the end of an answer that this client has cancelled by hanging up.

    A bridge does not tell what it has cost: its output is counted by its frames.
    """
    usage = UsageV2(input_tokens=0, output_tokens=n_frames)
    return ClientBlocksDone(
        id=request.id, stop_reason="cancelled", usage=usage, backend=""
    )
