"""Live sound over HTTP: for threads, on a connection of its own."""

from collections.abc import Iterable, Iterator
from typing import Final

import httpcore2

from inferd.client.connection.http_socket import HttpSocket
from inferd.client.core.live_call import LiveCall
from inferd.client.exchange import Exchange
from inferd.client.library.http_calls import BridgePlace
from inferd.limits.connections import READ_BYTES
from inferd.wire.requests import Request
from inferd.wire.responses import Response

_CONNECTED: Final = "connect_tcp.complete"


class LiveBridgeConnection:
    """A connection to a bridge, for one call with live sound.

    Args:
        place: of the bridge.
        timeout_s: seconds without bytes; ``None`` for any time.

    Ownership: one thread asks; any may ``interrupt`` it.
    """

    def __init__(self, place: BridgePlace, timeout_s: float | None) -> None:
        self._place = place
        self._timeout_s = timeout_s
        self._socket = HttpSocket()
        self._stream: httpcore2.NetworkStream | None = None

    def ask(
        self,
        exchange: Exchange[Request, Response],
        line: bytes,
        blocks: Iterable[bytes],
    ) -> Iterator[Response]:
        """Send a request and its sound; yield the frames of its answer as they come.

        Raises:
            ClientError: it failed.
        """
        call = self._place.live_call(exchange)
        with self._place.telling_failures():
            self._stream = stream = self._connect()
            try:
                yield from self._talk(stream, call, line, blocks)
            finally:
                self.close()

    def _connect(self) -> httpcore2.NetworkStream:
        place, backend = self._place, httpcore2.SyncBackend()
        wait_s = place.connect_s
        if place.socket is not None:
            stream = backend.connect_unix_socket(place.socket, wait_s)
        else:
            stream = backend.connect_tcp(place.host, place.port, wait_s)
        if place.has_tls:
            stream = stream.start_tls(place.tls_context(), place.host, wait_s)
        self._socket.note(_CONNECTED, {"return_value": stream})
        return stream

    def _talk(
        self,
        stream: httpcore2.NetworkStream,
        call: LiveCall,
        line: bytes,
        blocks: Iterable[bytes],
    ) -> Iterator[Response]:
        for data in _sent(call, line, blocks):
            try:
                stream.write(data, self._timeout_s)
            except httpcore2.WriteError:  # a refusal may have come before
                break
            while stream.get_extra_info("is_readable") and not call.is_over:
                yield from self._read(stream, call)
            if call.is_over:
                return
        while not call.is_over:
            yield from self._read(stream, call)

    def _read(
        self, stream: httpcore2.NetworkStream, call: LiveCall
    ) -> Iterator[Response]:
        frames, failure = call.feed(stream.read(READ_BYTES, self._timeout_s))
        yield from frames
        if failure is not None:
            raise failure

    def interrupt(self) -> None:
        """End the connection and the call in progress, from any thread."""
        self._socket.interrupt()

    def close(self) -> None:
        """Close the connection."""
        if self._stream is not None:
            self._stream.close()


def _sent(call: LiveCall, line: bytes, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what is sent; nothing for an empty block, while which frames are read."""
    yield call.start(line)
    for block in blocks:
        yield call.append(block) if block else b""
    yield call.append(b"", is_last=True)
