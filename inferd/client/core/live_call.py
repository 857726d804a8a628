"""A call of a bridge whose sound is sent while its answer comes; without I/O.

HTTP libraries send a whole request before they read. The route of live sound answers as the
sound comes, so the two directions are kept apart here.
"""

from collections.abc import Sequence
from typing import Final

import h11

from inferd.client.core.bridge_body import BodyReader
from inferd.client.core.failures import ClientError, ConnectionLostError
from inferd.client.exchange import Exchange
from inferd.wire.requests import Request
from inferd.wire.responses import Response

LIVE_PATH: Final = "/inferd/live"
_TYPE: Final = (b"content-type", b"application/x-ndjson")
_CHUNKED: Final = (b"transfer-encoding", b"chunked")


class LiveCall:
    """The state of one such call.

    Args:
        root: the bridge's address.
        headers: of any call.
        exchange: of the request, which is started.
    """

    def __init__(
        self,
        root: str,
        headers: Sequence[tuple[bytes, bytes]],
        exchange: Exchange[Request, Response],
    ) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._head = h11.Request(
            method="POST", target=_path_of(root), headers=[*headers, _TYPE, _CHUNKED]
        )
        self._exchange = exchange
        self._reader: BodyReader | None = None
        self.is_over = False
        """Whether the answer has come to its end."""

    def start(self, line: bytes) -> bytes:
        """Return the bytes that begin the call with the line of its request."""
        return self._send(self._head) + self._send(h11.Data(data=line))

    def append(self, samples: bytes, *, is_last: bool = False) -> bytes:
        """Return the bytes that append sound, and end the call if it is the last."""
        lines = self._exchange.append(samples, is_last=is_last)
        data = self._send(h11.Data(data=lines))
        return data + (self._send(h11.EndOfMessage()) if is_last else b"")

    def feed(self, data: bytes) -> tuple[list[Response], ClientError | None]:
        """Add bytes of the answer, none at its end.

        Returns:
            The frames that have come, and the failure behind them.
        """
        frames: list[Response] = []
        try:
            self._http.receive_data(data)
            while (event := self._http.next_event()) is not h11.NEED_DATA:
                more, failure = self._read(event)
                frames += more
                if failure is not None or self.is_over:
                    return frames, failure
        except h11.RemoteProtocolError as error:
            lost = ConnectionLostError(f"the bridge ended the answer: {error}")
            return frames, lost
        return frames, None

    def _read(self, event: object) -> tuple[list[Response], ClientError | None]:
        match event:
            case h11.Response(status_code=status):
                self._reader = BodyReader(self._exchange, status)
            case h11.Data(data=data) if self._reader is not None:
                return self._reader.read(bytes(data))
            case h11.EndOfMessage() if self._reader is not None:
                self.is_over = True
                return [], self._reader.end()
            case h11.ConnectionClosed() | h11.PAUSED:
                return [], ConnectionLostError("the bridge closed the connection")
            case _:
                pass
        return [], None

    def _send(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> bytes:
        return self._http.send(event) or b""


def _path_of(root: str) -> str:
    """Return the path of the route below the bridge's address."""
    _, _, path = root.partition("://")
    _, slash, below = path.partition("/")
    return f"{slash}{below}{LIVE_PATH}"
