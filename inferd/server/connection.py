"""One client's connection: the same loop for every inference socket."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog
import trio

from inferd.errors import PeerError
from inferd.limits import READ_BYTES
from inferd.server.dispatch import Service, dispatch
from inferd.server.hangup import Hangups
from inferd.server.peer import peer_of
from inferd.server.reply import PeerGoneError, Reply
from inferd.wire.framing import LineSplitter
from inferd.wire.requests import GenerateRequest

log = structlog.get_logger("server")


@dataclass(frozen=True, slots=True)
class Surface:
    """What differs from one inference socket to the next."""

    socket: str
    """The leaf of its path, for the log."""
    decode: Callable[[bytes], GenerateRequest]
    service: Service


class Connection:
    """Reads frames one at a time, answers each before it reads the next.

    What a client sends ahead waits in the kernel's buffer, so a connection holds one
    request at most. A client that ends only its own side is served to the end; one that
    closes the connection has its request cancelled.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        surface: Surface,
        *,
        hangups: Hangups,
        write_timeout_s: float,
    ) -> None:
        self._stream = stream
        self._surface = surface
        self._hangups = hangups
        self._write_timeout_s = write_timeout_s
        self._splitter = LineSplitter()
        self._has_ended = False
        self._reading: trio.CancelScope | None = None
        self._peer = peer_of(stream)
        self._log = log.bind(socket=surface.socket, peer=str(self._peer))

    def end(self) -> None:
        """Close the connection as soon as no request is being answered."""
        self._has_ended = True
        if self._reading is not None:
            self._reading.cancel()

    async def serve(self) -> None:
        """Answer requests until the client or the daemon ends it."""
        self._log.debug("client.connected")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            try:
                while await self._serve_one():
                    await trio.lowlevel.checkpoint()  # much sent at once: others' turn
            except PeerGoneError:
                self._log.info("client.gone")
            nursery.cancel_scope.cancel()

    async def _watch(self, scope: trio.CancelScope) -> None:
        await self._hangups.wait(self._stream)
        scope.cancel()

    async def _serve_one(self) -> bool:
        """Answer the next request; false when there is none, or no more to be had."""
        try:
            frame = await self._next_frame()
            if frame is None:
                return False
            request = self._surface.decode(frame)
        except PeerError as error:
            self._log.warning("client.refused", code=error.code.value)
            await self._reply("").fail(error)
            return not error.closes_connection
        return await dispatch(
            self._surface.service,
            request,
            self._reply(request.id),
            peer=self._peer,
            socket=self._surface.socket,
        )

    def _reply(self, request_id: str) -> Reply:
        return Reply(self._stream, request_id, write_timeout_s=self._write_timeout_s)

    async def _next_frame(self) -> bytes | None:
        while (frame := self._splitter.next_frame()) is None:
            if self._has_ended:
                return None
            data = await self._read()
            if not data:
                self._has_ended = True
                return self._splitter.last_frame()
            self._splitter.feed(data)
        return frame

    async def _read(self) -> bytes | bytearray:
        """Wait for bytes; none at the client's end, or when the daemon ends it."""
        try:
            with trio.CancelScope() as self._reading:
                return await self._stream.receive_some(READ_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise PeerGoneError from None
        self._splitter = LineSplitter()  # half a line at the daemon's end is no frame
        return b""
