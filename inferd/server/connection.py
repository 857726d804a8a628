"""One client's connection: the same loop for every inference socket."""

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog
import trio

from inferd.errors import InvalidFrameError, PeerError, PermissionDeniedError
from inferd.server.access import Access
from inferd.server.activity import Activity, event_on, where, who
from inferd.server.apart import find
from inferd.server.arrivals import Arrival, Arrivals
from inferd.server.beginning import Beginning
from inferd.server.dispatch import Refusal, Service, dispatch
from inferd.server.facts import facts_of
from inferd.server.inbox import Inbox
from inferd.server.long_lines import LongLine
from inferd.server.parcels import Parcels
from inferd.server.patience import Patience
from inferd.server.peer import groups_of, peer_of
from inferd.server.reading import read_in_turn
from inferd.server.reply import PeerGoneError, Reply
from inferd.server.surroundings import Surroundings
from inferd.wire.codec import Request

R = TypeVar("R", bound=Request)


@dataclass(frozen=True, slots=True)
class Surface(Generic[R]):
    """What differs from one inference socket to the next."""

    socket: str
    """The leaf of its path, for the log."""
    decode: Callable[[bytes], R]
    service: Service[R]
    takes_media: bool = False
    """Whether descriptors may come with requests, and lines that append to them."""

    def connect(
        self, stream: trio.SocketStream, around: Surroundings
    ) -> "Connection[R]":
        """Take a client in."""
        return Connection(stream, self, around)


class Connection(Generic[R]):
    """Answers requests one at a time, in order, and reads on meanwhile.

    A client that ends only its own side is served to the end; one that closes the
    connection has its request cancelled. One that the daemon lets go of is kept from
    sending first, then what it had sent is answered: no whole line is lost.
    """

    def __init__(
        self, stream: trio.SocketStream, surface: Surface[R], around: Surroundings
    ) -> None:
        self._stream = stream
        self._surface = surface
        self._around = around
        self._peer = peer_of(stream, around.identities)
        self._parcels = (
            Parcels(around.custody, self._peer.user) if surface.takes_media else None
        )
        self._room = trio.lowlevel.ParkingLot()
        beginning = Beginning(  # no cycle: the inbox may hold 64 MiB
            around.register,
            self._peer,
            surface.socket,
            lambda: around.limits.line_timeout_s,
            self._room.unpark_all,
        )
        self._inbox = Inbox(
            surface.decode,
            beginning.of,
            Arrivals(around.read_ahead, self._peer.user),
            self._parcels,
            around.decoders.apart_bytes,
        )
        self._news = trio.Event()
        self._is_held_up = False  # while its line waits for a turn to be read
        self._is_ending = False
        self._large_line = trio.CancelScope()
        # Lazily, since what is bound keeps the level that the log had then.
        self._log = structlog.get_logger(
            "activity", **where(surface.socket), **who(self._peer)
        )
        self.has_asked = False
        """Whether a request, or what was to be one, has been taken from it."""

    def end(self) -> None:
        """Close the connection as soon as nothing is being answered."""
        self._is_ending = True
        self._news.set()

    def review(self, access: Access) -> None:
        """End the connection if its client may no longer use the socket.

        It gets answers to what was read by then; what it asks meanwhile is refused.
        """
        leaf = self._surface.socket
        if not access.allows(leaf, self._peer, lambda: groups_of(self._stream)):
            self._inbox.refuse(PermissionDeniedError(self._peer.uid, leaf))
            self.end()

    async def serve(self) -> None:
        """Answer requests until the client or the daemon ends it."""
        name = event_on(self._surface.socket, "connection_accepted")
        self._log.info(name, transport="unix")
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope)
                nursery.start_soon(self._read_all)
                await self._answer_all()
                nursery.cancel_scope.cancel()
        finally:
            for activity in self._inbox.clear():
                activity.abandoned()
                self._leave(activity)
            if self._parcels is not None:
                self._parcels.close()

    # --- reading ----------------------------------------------------------------------

    async def _watch(self, scope: trio.CancelScope) -> None:
        await self._around.hangups.wait(self._stream)
        scope.cancel()

    async def _read_all(self) -> None:
        while True:
            while not (self._inbox.has_room or self._has_lines):
                await self._room.park()
            if (line := self._inbox.long) is not None:
                await self._read_apart(line)
            elif self._inbox.is_behind:
                await self._sort_on()
            elif self._inbox.is_large:
                await self._read_large_line()
            else:
                await self._read_more()

    async def _read_large_line(self) -> None:
        """Read a line on in its turn, which lasts until it is decoded: it takes memory."""
        self._is_held_up = True
        with trio.CancelScope() as self._large_line:
            async with self._around.large_lines.turn(self._peer.user):
                self._is_held_up = False
                self._news.set()
                while self._inbox.is_large:
                    await self._read_more()
                if (line := self._inbox.long) is not None:
                    await self._read_apart(line)

    @property
    def _has_lines(self) -> bool:
        """Whether there are lines here that nobody has looked at, and there is room."""
        return self._inbox.is_behind or self._inbox.long is not None

    async def _read_apart(self, line: LongLine) -> None:
        """Have a long line read by another process."""
        around, leaf, n_fds = self._around, self._surface.socket, self._inbox.n_long_fds
        found = await find(
            around.decoders, line, socket=leaf, peer=self._peer, n_fds=n_fds
        )
        self._inbox.settle(found)
        self._news.set()

    async def _sort_on(self) -> None:
        """Look at more of the lines that have been read."""
        await trio.lowlevel.checkpoint()
        await self._around.loop.turn()
        self._inbox.sort()
        self._news.set()

    async def _read_more(self) -> None:
        data = await read_in_turn(self._stream, self._parcels, self._around.loop)
        self._inbox.feed(data)
        self._news.set()

    def _hang_up(self) -> None:
        """Keep the client from sending: the kernel still gives what it has sent.

        Then comes an end as if it had ended its side; its own writes fail with EPIPE.
        """
        self._inbox.cut_off()
        if self._inbox.long is None:  # there is no more of it than the kernel holds
            self._large_line.cancel()
        with suppress(OSError):  # it is gone
            self._stream.socket.shutdown(socket.SHUT_RD)

    # --- answering --------------------------------------------------------------------

    async def _answer_all(self) -> None:
        try:
            while await self._answer_next():
                await trio.lowlevel.checkpoint()  # much sent at once: others' turn
        except PeerGoneError:
            self._log.info("client.gone")

    async def _answer_next(self) -> bool:
        """Answer the next request; false when there is none, and none to come.

        One that ends the connection ends it once all is answered that was sent, but a
        line that is no request: what follows that is not trusted to be any.
        """
        arrival = await self._next()
        if arrival is None:
            return False
        self.has_asked = True
        if isinstance(arrival, PeerError):
            await self._around.loop.turn()
            if not await self._refuse(arrival):
                self._inbox.close()
        elif not await self._answer(arrival):
            self._hang_up()
        return True

    async def _answer(self, arrival: Arrival[R]) -> bool:
        request, activity, refusal = arrival
        try:
            await self._wait_for_turn(activity)
            if activity.resolved is None:
                activity.facts.update(facts_of(request))
            service = Refusal(refusal) if refusal else self._surface.service
            return await dispatch(service, request, self._reply(request.id), activity)
        finally:
            self._leave(activity)

    async def _wait_for_turn(self, activity: Activity) -> None:
        try:
            await self._around.loop.turn()
        except trio.Cancelled:
            activity.abandoned()
            raise

    def _leave(self, activity: Activity) -> None:
        self._around.register.leave(activity)
        activity.free()

    async def _next(self) -> Arrival[R] | PeerError | None:
        patience = Patience(trio.current_time())
        while (arrival := self._inbox.take()) is None and not self._inbox.is_over:
            self._room.unpark_all()
            if self._is_ending:
                self._hang_up()
            if refusal := await self._wait_for_news(patience):
                return refusal
        self._room.unpark_all()
        return arrival

    async def _wait_for_news(self, patience: Patience) -> PeerError | None:
        """Wait for more to be read; where that takes too long, say why it is the end.

        Who idles too long is let go without a word.
        """
        limits, line = self._around.limits, self._inbox.unfinished
        deadline = patience.deadline(
            limits, line, is_held_up=self._is_held_up, now=trio.current_time()
        )
        with trio.move_on_at(deadline):
            await self._news.wait()
        if self._news.is_set():
            self._news = trio.Event()
            return None
        if line is not None:
            return InvalidFrameError(
                f"no line ended within {limits.line_timeout_s:g} s"
            )
        if self._around.room.needs_places_of(self._peer.user):
            self._log.info("client.idle")
            self.end()
        return None

    async def _refuse(self, error: PeerError) -> bool:
        name = event_on(self._surface.socket, "request_refused")
        self._log.warning(name, code=error.code.value)
        self._around.register.refuse(self._surface.socket, error)
        await self._reply("").fail(error)
        return not error.closes_connection

    def _reply(self, request_id: str) -> Reply:
        return Reply(
            self._stream,
            request_id,
            write_timeout_s=self._around.limits.write_timeout_s,
            unread=self._around.unread,
            uid=self._peer.user,
        )
