"""One client's connection: the same loop for every inference socket."""

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog
import trio

from inferd.backend.caller import Caller
from inferd.errors import InvalidFrameError, PeerError, PermissionDeniedError
from inferd.line_decoder.kind import AnyLineKind
from inferd.server.connection.deps import ConnectionDeps
from inferd.server.connection.dispatch import RefusingService, Service, dispatch
from inferd.server.connection.read_ahead import PendingRequest, ReadAheadQueue
from inferd.server.connection.read_timeout import ReadTimeout
from inferd.server.connection.registry import TrackedConnection
from inferd.server.connection.request_reader import RequestReader
from inferd.server.connection.response_writer import PeerGoneError, ResponseWriter
from inferd.server.event_loop.read import read_in_turn
from inferd.server.fd_passing.quota import LineFds
from inferd.server.fd_passing.receive import FdsByLine
from inferd.server.identity.access import Access
from inferd.server.identity.peer import Peer, groups_of, peer_of
from inferd.server.large_lines.decode import decode_line
from inferd.server.large_lines.lines import LargeLine
from inferd.server.media.append_queue import make_append_queue
from inferd.server.request_context import (
    RequestContext,
    event_name,
    peer_fields,
    socket_fields,
)
from inferd.surfaces import Surface
from inferd.wire.requests import DescribeRequest, Request

R = TypeVar("R", bound=Request)


class Connection(TrackedConnection, Protocol):
    """A client's connection, whatever its requests are."""

    async def serve(self) -> None:
        """Answer requests until the client or the daemon ends the connection."""


class AnyEndpoint(Protocol):
    """An endpoint, whatever its requests are."""

    @property
    def surface(self) -> Surface:
        """The surface that it serves."""

    @property
    def socket(self) -> str:
        """File name of the socket."""

    def connect(self, stream: trio.SocketStream, deps: ConnectionDeps) -> Connection:
        """Make the connection of an accepted client."""


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[R]):
    """The decoder and the service of one inference socket."""

    surface: Surface
    decode: Callable[[bytes], R]
    service: Service[R]
    describe: Service[DescribeRequest]
    """Answers which models the socket serves."""
    takes_media: bool = False
    """Whether clients may pass descriptors with requests, and append to attachments."""
    large_lines: AnyLineKind | None = None
    """As what the line decoder decodes large lines; without it they are refused."""

    @property
    def socket(self) -> str:
        """File name of the socket."""
        return self.surface.socket

    def connect(
        self, stream: trio.SocketStream, deps: ConnectionDeps
    ) -> "ClientConnection[R]":
        """Make the connection of an accepted client."""
        return ClientConnection(stream, self, deps)


def context_maker(
    deps: ConnectionDeps, peer: Peer, surface: Surface, on_taken: Callable[[], object]
) -> Callable[[Request, int, LineFds], RequestContext]:
    """Make the function that makes contexts for the requests of one connection.

    The function does not refer to the connection: its request reader, which may hold
    a large line, would be part of a reference cycle.

    Args:
        deps: their requests in flight and their limits.
        peer: the client.
        surface: of the socket that it is connected to.
        on_taken: called when the service has taken an appended line.
    """

    def make_context(
        request: Request, n_bytes: int, line_fds: LineFds
    ) -> RequestContext:
        """Make the context of a request, which owns the descriptors from then on."""
        now = trio.current_time()
        principal, denial = deps.gateways.identify(peer, request.principal, now=now)
        context = RequestContext(
            peer,
            surface,
            request.id,
            now,
            n_bytes,
            line_fds=line_fds,
            principal=principal,
            denial=denial,
            appends=make_append_queue(
                request, timeout_s=deps.limits.line_timeout_s, on_taken=on_taken
            ),
        )
        deps.in_flight.add(context)
        return context

    return make_context


class ClientConnection(Generic[R]):
    """Connection that answers requests one at a time, in order, and reads ahead meanwhile.

    A client that shuts down only its sending side gets all answers. One that closes the
    connection has its requests cancelled. When the daemon closes the connection, it first
    shuts down reading and then answers what was received: no complete line is lost.
    """

    def __init__(
        self, stream: trio.SocketStream, endpoint: Endpoint[R], deps: ConnectionDeps
    ) -> None:
        self._stream = stream
        self._endpoint = endpoint
        self._deps = deps
        self._peer = peer_of(stream, deps.identities)
        self._fds_by_line = (
            FdsByLine(deps.fd_quota, self._peer.user) if endpoint.takes_media else None
        )
        self._can_read_more = trio.lowlevel.ParkingLot()
        self._reader = RequestReader(
            endpoint.decode,
            context_maker(
                deps, self._peer, endpoint.surface, self._can_read_more.unpark_all
            ),
            ReadAheadQueue(deps.read_ahead, self._peer.user),
            self._fds_by_line,
            deps.decoders.offload_line_bytes,
        )
        self._changed = trio.Event()
        self._is_paused = False  # while a large line waits for its permit
        self._is_ending = False
        self._limited_line_scope = trio.CancelScope()
        # Left lazy: a bound logger keeps the log level of its creation.
        self._log = structlog.get_logger(
            "activity", **socket_fields(endpoint.surface), **peer_fields(self._peer)
        )
        self.has_sent_request = False
        """Whether a request has come to its service, or an invalid line been refused."""

    def close_when_idle(self) -> None:
        """Close the connection as soon as no request is being answered."""
        self._is_ending = True
        self._changed.set()

    def recheck_access(self, access: Access) -> None:
        """Close the connection if its client may no longer use the socket.

        Requests that are read already are answered; later ones are refused.
        """
        leaf = self._endpoint.socket
        if not access.allows(leaf, self._peer, lambda: groups_of(self._stream)):
            self._reader.refuse_new(PermissionDeniedError(self._peer.uid, leaf))
            self.close_when_idle()

    async def serve(self) -> None:
        """Answer requests until the client or the daemon ends the connection."""
        name = event_name(self._endpoint.surface, "connection_accepted")
        self._log.info(name, transport="unix")
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_disconnect, nursery.cancel_scope)
                nursery.start_soon(self._read_all)
                await self._answer_all()
                nursery.cancel_scope.cancel()
        finally:
            for context in self._reader.clear():
                context.abandoned()
                self._remove(context)
            if self._fds_by_line is not None:
                self._fds_by_line.close()

    # --- reading ----------------------------------------------------------------------

    async def _watch_disconnect(self, scope: trio.CancelScope) -> None:
        await self._deps.disconnects.wait(self._stream)
        scope.cancel()

    async def _read_all(self) -> None:
        while True:
            while not (self._reader.accepts_more or self._has_lines):
                await self._can_read_more.park()
            if (line := self._reader.large_line) is not None:
                await self._decode_large_line(line)
            elif self._reader.has_more_lines:
                await self._parse_more()
            elif self._reader.is_in_limited_line:
                await self._read_limited_line()
            else:
                await self._read_more()

    async def _read_limited_line(self) -> None:
        """Read on in a line that may take much memory, and decode it, when the limiter allows."""
        self._is_paused = True
        self._changed.set()
        with trio.CancelScope() as self._limited_line_scope:
            async with self._deps.line_limiter.acquire(self._peer.user):
                self._is_paused = False
                self._changed.set()
                while self._reader.is_in_limited_line:
                    await self._read_more()
                if (line := self._reader.large_line) is not None:
                    await self._decode_large_line(line)

    @property
    def _has_lines(self) -> bool:
        """Whether received lines are waiting to be parsed or decoded."""
        return self._reader.has_more_lines or self._reader.large_line is not None

    async def _decode_large_line(self, line: LargeLine) -> None:
        """Have a decoder process decode a large line."""
        parsed = await decode_line(
            self._deps.decoders,
            line,
            kind=self._endpoint.large_lines,
            peer=self._peer,
            n_fds=self._reader.n_large_line_fds,
        )
        self._reader.put_decoded_line(parsed)
        self._changed.set()

    async def _parse_more(self) -> None:
        """Parse more of the lines that were received."""
        await trio.lowlevel.checkpoint()
        await self._deps.loop.turn()
        self._reader.parse_lines()
        self._changed.set()

    async def _read_more(self) -> None:
        data = await read_in_turn(self._stream, self._fds_by_line, self._deps.loop)
        if self._reader.feed(data):  # a line that goes on concerns nobody
            self._changed.set()

    def _shut_down_reading(self) -> None:
        """Stop the client from sending; what the kernel has received can still be read.

        Reads then return EOF, as if the client had shut down its side; its writes fail with
        EPIPE.
        """
        self._reader.mark_shut_down()
        if self._reader.large_line is None:  # the rest is in the socket's buffer
            self._limited_line_scope.cancel()
        with suppress(OSError):  # the client has disconnected
            self._stream.socket.shutdown(socket.SHUT_RD)

    # --- answering --------------------------------------------------------------------

    async def _answer_all(self) -> None:
        try:
            while await self._answer_next():
                await trio.lowlevel.checkpoint()  # let other connections run
        except PeerGoneError:
            self._log.info("client.gone")

    async def _answer_next(self) -> bool:
        """Answer the next request; false when there are no more.

        After an error that ends the connection, requests that were sent are still answered;
        after an invalid line, nothing that follows is parsed.
        """
        item = await self._next()
        if item is None:
            return False
        if isinstance(item, PeerError):
            await self._deps.loop.turn()
            self.has_sent_request = True
            if not await self._send_refusal(item):
                self._reader.close()
        elif not await self._answer(item):
            self._shut_down_reading()
        return True

    async def _answer(self, item: PendingRequest[R]) -> bool:
        request, context, refusal = item
        try:
            await self._wait_for_turn(context)
            self.has_sent_request = True
            if context.resolved is None:
                context.stats.update(request.counts())
            reply = self._reply(request.id, context.caller, context.steps.note_stall)
            if refusal is not None:
                service = RefusingService(refusal)
                return await dispatch(service, request, reply, context)
            if isinstance(request, DescribeRequest):
                describe = self._endpoint.describe
                return await dispatch(describe, request, reply, context)
            return await dispatch(self._endpoint.service, request, reply, context)
        finally:
            self._remove(context)

    async def _wait_for_turn(self, context: RequestContext) -> None:
        try:
            await self._deps.loop.turn()
        except trio.Cancelled:
            context.abandoned()
            raise

    def _remove(self, context: RequestContext) -> None:
        self._deps.in_flight.remove(context)
        context.release()

    async def _next(self) -> PendingRequest[R] | PeerError | None:
        read_timeout = ReadTimeout(trio.current_time())
        while (item := self._reader.take()) is None and not self._reader.is_over:
            self._can_read_more.unpark_all()
            if self._is_ending:
                self._shut_down_reading()
            if refusal := await self._wait_for_change(read_timeout):
                return refusal
        self._can_read_more.unpark_all()
        return item

    async def _wait_for_change(self, read_timeout: ReadTimeout) -> PeerError | None:
        """Wait for more input; return an error where a line takes too long.

        An idle connection is closed without a frame when connections are scarce.
        """
        limits, line = self._deps.limits, self._reader.unfinished_line
        deadline = read_timeout.deadline(
            limits, line, is_paused=self._is_paused, now=trio.current_time()
        )
        with trio.move_on_at(deadline):
            await self._changed.wait()
        if self._changed.is_set():
            self._changed = trio.Event()
            return None
        if line is not None:
            return InvalidFrameError(
                f"no line ended within {limits.line_timeout_s:g} s"
            )
        if self._deps.connection_limit.must_close_idle(self._peer.user):
            self._log.info("client.idle")
            self.close_when_idle()
        return None

    async def _send_refusal(self, error: PeerError) -> bool:
        name = event_name(self._endpoint.surface, "request_refused")
        self._log.warning(name, code=error.code.value)
        self._deps.metrics.count_invalid_line(self._endpoint.socket, error)
        await self._reply("", Caller(self._peer.user)).fail(error)
        return not error.closes_connection

    def _reply(
        self,
        request_id: str,
        caller: Caller,
        on_stall: Callable[[float], object] = lambda _: None,
    ) -> ResponseWriter:
        return ResponseWriter(
            self._stream,
            request_id,
            on_stall=on_stall,
            write_timeout_s=self._deps.limits.write_timeout_s,
            output_quota=self._deps.output_quota,
            caller=caller,
        )
