"""One HTTP connection: hypercorn parses it, and here are the bounds in time and bytes.

Hypercorn's own server has no bound for a head that is sent slowly nor for a client that does
not read, and sees no end of a connection behind a request that was sent ahead. So its
protocol is driven from here; its parser is h11. HTTP/2 is not spoken.
"""

import os
from contextlib import suppress
from math import inf
from typing import Final, Protocol

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState

from inferd.bridge.http.protocol import AppTasks, PlainProtocol, RequestParser
from inferd.bridge.identity.caller import HttpPeer
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.client.connection.lock import take
from inferd.config.bridge import BridgeSettings
from inferd.limits.bridge import (
    CLOSE_S,
    LINGER_BYTES,
    LINGER_S,
    NEW_CONNECTION_S,
    PIPELINED_BYTES,
    READ_BYTES,
)

_TURNS: Final = 2
"""Turns of the event loop in which what the kernel has received is read."""
_BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError)


class ByteStream(Protocol):
    """A TCP, TLS or Unix connection."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive bytes; none at the end."""

    async def send_all(self, data: bytes | memoryview) -> None:
        """Send bytes."""

    async def aclose(self) -> None:
        """Close."""


class HttpConnection:
    """Serves the requests of one connection, one after the other.

    Args:
        app: is called for each request.
        stream: the connection; it is closed at the end.
        peer: its other end.
        config: of hypercorn, with ``h11_max_incomplete_size``.
        settings: the bounds.
        context: its ``terminated`` says that the bridge is going down: a connection closes
            once its request is answered; ``close_if_idle`` is called for those without one.
    """

    def __init__(  # noqa: PLR0913  # all that a connection is made of
        self,
        app: AppWrapper,
        stream: ByteStream,
        peer: HttpPeer,
        *,
        config: Config,
        settings: BridgeSettings,
        context: WorkerContext,
    ) -> None:
        self._app = app
        self._stream = stream
        self.peer = peer
        self._config = config
        self._settings = settings
        self._context = context
        self._sending = trio.Lock()
        self._held = b""
        """What is sent with what follows it: a head, and the last part of a stream."""
        self.is_idle = True
        """Whether no request is being received or answered; its head may have begun."""
        self.idle_since = trio.current_time()
        self.may_go_at = self.idle_since + NEW_CONNECTION_S
        """When it may be closed, if it is idle, to make room for another connection."""
        self._has_head_begun = False
        self._unparsed = bytearray()
        """What has come and was not parsed yet: of a body, or of further requests."""
        self._has_unparsed = trio.Event()
        self._is_taken = trio.Event()
        """Set when the parser has taken what there was."""
        self._reading = trio.CancelScope()
        """Around all that is read, which ends at its deadline."""
        self._has_read_all = trio.Event()
        self._n_dropped: int | None = None
        """Bytes that were read and dropped; ``None`` while what comes is parsed."""

    async def run(self) -> None:
        """Serve until the connection ends."""
        try:
            async with AppTasks() as group:
                self._protocol = PlainProtocol(
                    self._app,
                    self._config,
                    self._context,
                    group,
                    ConnectionState({"peer": self.peer, "write": self.write_chunk}),
                    ssl=False,
                    client=None,
                    server=None,
                    send=self._act,
                )
                most = self._config.h11_max_incomplete_size
                self._protocol.connection = RequestParser(most)
                if not self._context.terminated.is_set():
                    await self._read_and_parse()
                await self._protocol.handle(Closed())
        finally:
            with trio.CancelScope(shield=True):
                await self.close()

    async def close_if_idle(self) -> None:
        """Close the connection unless it has a request, as the bridge goes down."""
        if self.is_idle:
            await self.close()

    def _expect(self, *, is_idle: bool) -> None:
        """Note whether the next request, or what there is to come of one, is expected."""
        self.is_idle = is_idle
        self.idle_since = trio.current_time()
        if not is_idle:  # it is not new any more
            self.may_go_at = self.idle_since
        self._has_head_begun = False
        self._end_reading_in(self._settings.idle_s if is_idle else inf)

    def _end_reading_in(self, seconds: float) -> None:
        self._reading.deadline = trio.current_time() + seconds

    async def _read_and_parse(self) -> None:
        """Read until the end of the connection, while another task parses.

        The parser waits where a request is answered, or its body is not taken; the end of
        the connection has to be seen all the same.
        """
        async with trio.open_nursery() as nursery:
            self._reading = nursery.cancel_scope
            self._expect(is_idle=True)
            nursery.start_soon(self._parse_all)
            await self._read_all()
            self._has_read_all.set()
            nursery.cancel_scope.cancel()
        self._has_read_all.set()

    async def _read_all(self) -> None:
        while data := await self._receive():
            if self._n_dropped is not None:
                self._n_dropped += len(data)
                if self._n_dropped > LINGER_BYTES:
                    return
                continue
            if self.is_idle and not self._has_head_begun:
                self._has_head_begun = True
                self._end_reading_in(self._settings.head_s)
            self._unparsed += data
            self._has_unparsed.set()
            while len(self._unparsed) > PIPELINED_BYTES:
                if self._is_answering():
                    return
                await self._is_taken.wait()

    async def _parse_all(self) -> None:
        while True:
            await self._has_unparsed.wait()
            if self._n_dropped is not None:
                return
            data, self._unparsed = bytes(self._unparsed), bytearray()
            self._has_unparsed = trio.Event()
            self._is_taken.set()
            self._is_taken = trio.Event()
            await self._protocol.handle(RawData(data))

    async def _receive(self) -> bytes:
        """Receive bytes; none at the end of the connection."""
        with suppress(*_BROKEN, OSError):
            return bytes(await self._stream.receive_some(READ_BYTES))
        return b""

    def _is_answering(self) -> bool:
        """Tell whether a request has been read to its end, and not yet been answered."""
        state = self._protocol.connection.their_state
        return not self.is_idle and state is not h11.SEND_BODY

    async def _act(self, event: Event) -> None:
        """Do what the protocol asks for."""
        match event:
            case RawData(data=data) if self._protocol.is_sending_head:
                self._held += data
            case RawData(data=data):
                await self._send(data)
            case Closed():
                await self._linger()
                await self.close()
            case Updated(idle=is_idle):
                self._expect(is_idle=is_idle)
            case _:
                pass

    async def write_chunk(self, data: bytes, *, is_last: bool = False) -> bool:
        """Send a part of a streamed body as h11 would, but at a tenth of its cost.

        Args:
            data: of the body. A chunk without any would end it, so none is sent for no bytes.
            is_last: whether the end of the body follows at once, and is sent along.

        Returns:
            Whether the answer has this form: HTTP/1.0 has no chunks.
        """
        parser = self._protocol.connection
        assert isinstance(parser, h11.Connection)  # noqa: S101  # no WebSocket is spoken
        if (parser.our_state, parser.their_http_version) != (h11.SEND_BODY, b"1.1"):
            return False
        chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        if is_last or not data:
            self._held += chunk
        else:
            await self._send(chunk)
        return True

    async def _linger(self) -> None:
        """Drop what the client still sends, for a while, so that it reads the answer."""
        state = self._protocol.connection.their_state
        if not self._unparsed and state not in (h11.SEND_BODY, h11.ERROR):
            return
        self._drop()
        self._end_reading_in(LINGER_S)
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            with suppress(*_BROKEN, OSError):
                await self._stream.send_eof()
        await self._has_read_all.wait()

    def _drop(self) -> None:
        """Have nothing more parsed of what comes; the connection makes room for others."""
        self._n_dropped = len(self._unparsed)
        self._unparsed.clear()
        self._is_taken.set()
        self.is_idle = True
        self.idle_since = trio.current_time()

    async def evict(self) -> None:
        """End an idle connection for another one; a request that has begun to come is refused."""
        for _ in range(_TURNS):
            await trio.lowlevel.checkpoint()
        if not self.is_idle:
            return
        if self._has_head_begun and self._n_dropped is None:
            self._drop()
            failure = BridgeError(
                Reason.QUEUE_FULL,
                "all connections are in use, and the request did not come in time",
                retry_after_s=1.0,
            )
            with trio.move_on_after(CLOSE_S):
                await self._protocol.refuse(failure.status, failure)
        await self.close()

    async def _send(self, data: bytes) -> None:
        """Send bytes behind those that are held; other tasks run only if it has to wait.

        What the kernel takes at once needs no lock: nothing comes between it.
        """
        left = memoryview(self._held + data)
        self._held = b""
        try:
            if not self._sending.locked():
                left = self._send_now(left)
            if left:
                await self._send_rest(left)
        except (*_BROKEN, OSError, trio.TooSlowError):
            await self.close()

    async def _send_rest(self, data: memoryview) -> None:
        """Send bytes as the client takes them, behind those that others wait to send."""
        await take(self._sending)
        try:
            with trio.fail_after(self._settings.write_s):
                await self._stream.send_all(data)
        finally:
            self._sending.release()

    def _send_now(self, data: memoryview) -> memoryview:
        """Send what the kernel takes at once; return the rest, all of it with TLS.

        Raises:
            OSError: the connection broke.
        """
        n_sent = 0
        if isinstance(self._stream, trio.SocketStream):
            with suppress(BlockingIOError):
                n_sent = os.write(self._stream.socket.fileno(), data)
        return data[n_sent:]

    async def close(self) -> None:
        """Close the connection; a request that it has ends."""
        self._reading.cancel()
        with suppress(*_BROKEN, OSError), trio.move_on_after(CLOSE_S):
            await self._stream.aclose()
