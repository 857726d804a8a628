"""Live sound over HTTP: for tasks, on a connection of its own."""

import anyio
import httpcore2

from inferd.client.core.failures import ConnectionLostError
from inferd.client.core.live_call import LiveCall
from inferd.client.exchange import Exchange
from inferd.client.library.http_calls import BridgePlace
from inferd.client.surfaces import BLOCKS
from inferd.limits.connections import READ_BYTES
from inferd.wire.blocks import BlocksRequest
from inferd.wire.responses import Response


class LiveHttpAnswer:
    """A call with live sound: one task appends, another one reads.

    Args:
        place: of the bridge.
        timeout_s: seconds without bytes; ``None`` for any time.
        request: with an open attachment.

    Cancellation: ``aclose`` it; the bridge then ends its request.
    """

    def __init__(
        self, place: BridgePlace, timeout_s: float | None, request: BlocksRequest
    ) -> None:
        self._place = place
        self._timeout_s = timeout_s
        exchange: Exchange = Exchange(BLOCKS)  # type: ignore[type-arg]  # of all requests
        self._line = exchange.start(request)
        self._call: LiveCall = place.live_call(exchange)
        self._stream: httpcore2.AsyncNetworkStream | None = None
        self._is_refused = False
        """Whether the bridge reads no more: its answer says why."""

    async def begin(self) -> None:
        """Connect, and send the request.

        Raises:
            ClientError: no bridge is there.
        """
        with self._place.telling_failures():
            self._stream = await self._connect()
        await self._write(self._call.start(self._line))

    async def _connect(self) -> httpcore2.AsyncNetworkStream:
        place, backend = self._place, httpcore2.AnyIOBackend()
        wait_s = place.connect_s
        if place.socket is not None:
            return await backend.connect_unix_socket(place.socket, wait_s)
        stream = await backend.connect_tcp(place.host, place.port, wait_s)
        if not place.has_tls:
            return stream
        return await stream.start_tls(place.tls_context(), place.host, wait_s)

    async def append(self, samples: bytes, *, is_last: bool = False) -> None:
        """Append audio, and end the call if it is the last."""
        if samples or is_last:
            await self._write(self._call.append(samples, is_last=is_last))

    async def _write(self, data: bytes) -> None:
        if self._stream is None or self._is_refused:
            return
        try:
            with self._place.telling_failures():
                await self._stream.write(data, self._timeout_s)
        except ConnectionLostError:
            self._is_refused = True

    async def next_frames(self) -> list[Response]:
        """Return the frames that have come; none at the end of the answer."""
        while self._stream is not None and not self._call.is_over:
            with self._place.telling_failures():
                data = await self._stream.read(READ_BYTES, self._timeout_s)
            frames, failure = self._call.feed(data)
            if failure is not None:
                raise failure
            if frames:
                return frames
        return []

    def interrupt(self) -> None:
        """End the call: who reads or appends gets ``ConnectionLostError``."""
        if self._stream is not None:
            sock = self._stream.get_extra_info("socket")
            anyio.notify_closing(sock)

    async def aclose(self) -> None:
        """Hang up."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with anyio.CancelScope(shield=True):
                await stream.aclose()
