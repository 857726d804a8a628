"""The body of a bridge's answer: frames, or why there are none."""

from typing import Final

from inferd.client.core.bridge_calls import OK, foreign_answer, is_frame
from inferd.client.core.failures import ClientError, ConnectionLostError
from inferd.client.exchange import Exchange
from inferd.wire.requests import Request
from inferd.wire.responses import Response

FAILURE_MAX_BYTES: Final = 64 * 1024
"""Bytes of the body of a failure that are read."""


class BodyReader:
    """Reads the body of an answer: frames, or why there are none.

    Args:
        exchange: of the request, which is started.
        status: of the answer.

    Bounds:
        Keeps ``FAILURE_MAX_BYTES`` of the body of a failure.
    """

    def __init__(self, exchange: Exchange[Request, Response], status: int) -> None:
        self._exchange = exchange
        self._status = status
        self._failure = bytearray()

    def read(self, data: bytes) -> tuple[list[Response], ClientError | None]:
        """Add bytes; return the frames that have come, and the failure behind them."""
        if self._status != OK:
            self._failure += data[: FAILURE_MAX_BYTES - len(self._failure)]
            return [], None
        self._exchange.feed(data)
        return self._exchange.next_frames()

    def end(self) -> ClientError | None:
        """End the body; return why there are not all frames."""
        if self._exchange.is_done:
            return None
        body = bytes(self._failure)
        if self._status == OK:
            return ConnectionLostError("the bridge ended the answer before its end")
        if not is_frame(body):
            return foreign_answer(self._status, body)
        self._exchange.feed(body if body.endswith(b"\n") else body + b"\n")
        return self._exchange.next_frames()[1]
