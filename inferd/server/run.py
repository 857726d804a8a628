"""The task tree, from the lock to the last goodbye."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial

import structlog
import trio

from inferd.backend import Backend
from inferd.config import Config, ConfigError
from inferd.paths import ADMIN_SOCKET
from inferd.server.admin import serve_admin
from inferd.server.audience import Audience
from inferd.server.commands import Commands
from inferd.server.decoding import Decoders
from inferd.server.doors import Doors
from inferd.server.entrance import Entrance
from inferd.server.force import Force, nothing_to_read
from inferd.server.guests import Guests
from inferd.server.hangup import Hangups
from inferd.server.holdings import MediaRoom
from inferd.server.large_lines import LargeLines
from inferd.server.limits import MAX_MEDIA_FILES
from inferd.server.listen import ADMIN_MODE, INFERENCE_MODE
from inferd.server.loop import Loop, collect_young
from inferd.server.peer import peer_of
from inferd.server.reception import Door, Reception, in_a_frame, in_a_reply, unserved
from inferd.server.register import Register
from inferd.server.reload import Reloaded
from inferd.server.room import Room
from inferd.server.sizes import make_gate
from inferd.server.surfaces import AnySurface, surfaces
from inferd.server.surroundings import Surroundings
from inferd.server.turns import Turns
from inferd.server.unread import Unread

log = structlog.get_logger("daemon")

LAST_WORDS_S = 2.0
"""Seconds for the last frames to be written once the time to drain is over."""


class Daemon:
    """Everything between the sockets and the backends.

    The nesting of its tasks is the order of shutdown, read from the inside out: clients,
    workers, admin, lock.

    Args:
        doors: the sockets and the lock.
        read_config: reads the configuration again; raises ``ConfigError``.

    Raises:
        ConfigError: a user or a group that is named is not there.
    """

    def __init__(
        self,
        config: Config,
        doors: Doors,
        backends: Sequence[Backend],
        audience: Audience,
        read_config: Callable[[], Config] = nothing_to_read,
    ) -> None:
        self._doors = doors
        self._backends = backends
        self._board, self._notifier, metrics = audience
        self._read_config = read_config
        self._turns = Turns(make_gate(config))
        loop = Loop()
        self._around = Surroundings(
            hangups=Hangups(),
            register=Register(metrics),
            room=Room(config.limits.max_connections),
            large_lines=LargeLines(config.limits.max_large_lines),
            unread=Unread(config.limits.max_unread_bytes),
            media=MediaRoom(config.limits, MAX_MEDIA_FILES, self._turns.count_waiting),
            limits=config.limits,
            loop=loop,
            decoders=Decoders(loop),
        )
        self._force = Force(
            config=config,
            reception=Reception(metrics, self._around.loop),
            around=self._around,
            listeners=Room(config.limits.max_admin_connections),
            turns=self._turns,
            n_backends=len(backends),
        )
        self._commands = Commands(
            register=self._around.register,
            turns=self._turns,
            backends=backends,
            metrics=metrics,
            drain=self._drain_once,
            reload=self.reload,
        )
        around = self._around
        watched = (around.room, around.unread, around.custody)
        for figure in (*self._turns.figures(), *(each.figure() for each in watched)):
            metrics.watch(*figure)
        self._guests = Guests()
        self._n_listeners = 0
        self._left = trio.lowlevel.ParkingLot()
        self._stop = trio.Event()
        self._scope = trio.CancelScope()
        self._hurry = trio.CancelScope()
        self._is_ready = False
        self._is_told_to_stop = False

    def stop(self) -> None:
        """Drain and end; before it was ready, end at once.

        Asked again, what is not finished has no more time; its clients are told.
        """
        if not self._is_ready:
            self._scope.cancel()
        elif self._is_told_to_stop:
            self._hurry.cancel()
        self._is_told_to_stop = True
        self._stop.set()

    def _drain_once(self) -> bool:
        """Drain and end, however often it is asked; false before it is ready.

        A manager that stops what drains already has asked once.
        """
        if self._is_ready:
            self._stop.set()
        return self._is_ready

    def reload(self) -> Reloaded:
        """Read the configuration again, and put in force what can be.

        Raises:
            ConfigError: it cannot be used; nothing has changed.
        """
        is_told = self._is_ready and not self._stop.is_set()
        if is_told:
            self._notifier.reloading()
        try:
            reloaded = self._force.change(self._read_config())
        except ConfigError as error:
            log.warning("config.refused", reason=str(error))
            raise
        finally:
            if is_told:
                self._notifier.ready()
        self._guests.review(self._force.reception.access)
        log.info("config.reloaded", **reloaded._asdict())
        return reloaded

    async def run(self) -> None:
        """Serve until stopped.

        Raises:
            ListenError: a socket or the lock cannot be had.
            StartFailedError: a backend did not get ready. Both come in groups.
        """
        self._force.share_out()
        reception = self._force.reception
        reception.open()
        with ExitStack() as stack:
            stack.enter_context(closing(reception))
            stack.enter_context(self._doors.locked())
            stack.enter_context(self._around.loop.measuring())
            stack.enter_context(self._around.decoders.open())
            stack.enter_context(self._scope)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._around.hangups.run)
                nursery.start_soon(self._turns.run)
                nursery.start_soon(self._around.loop.run)
                nursery.start_soon(collect_young)
                nursery.start_soon(self._notifier.feed_watchdog)
                with self._doors.open(nursery, self._admin_door(), reception):
                    await self._run_backends()
                await self._say_goodbye()
                nursery.cancel_scope.cancel()
        log.info("daemon.stopped")

    async def _run_backends(self) -> None:
        async with trio.open_nursery() as nursery:
            all_ready = [trio.Event() for _ in self._backends]
            for backend, is_ready in zip(self._backends, all_ready, strict=True):
                nursery.start_soon(backend.run, is_ready.set)
            for is_ready in all_ready:
                await is_ready.wait()
            self._turns.bound(
                [backend.capabilities.n_slots for backend in self._backends]
            )
            await self._run_clients()
            nursery.cancel_scope.cancel()

    async def _say_goodbye(self) -> None:
        """Let listeners read what they were told, as far as there is time."""
        self._board.close()
        with trio.move_on_after(LAST_WORDS_S):
            while self._n_listeners:
                await self._left.park()

    async def _run_clients(self) -> None:
        async with trio.open_nursery() as nursery:
            with ExitStack() as doors:
                for door in self._inference_doors():
                    opened = self._doors.open(nursery, door, self._force.reception)
                    doors.enter_context(opened)
                self._is_ready = True
                self._board.all_ready()
                self._notifier.ready()
                log.info(
                    "daemon.ready",
                    directory=str(self._doors.directory),
                    inherited=self._doors.inherited,
                )
                await self._stop.wait()
                self._board.draining()
                self._notifier.stopping()
            await self._drain()
            self._around.decoders.interrupt()
            nursery.cancel_scope.cancel()

    async def _drain(self) -> None:
        """Finish what is running and queued, as far as there is time; end the rest."""
        drain_s = self._force.config.limits.drain_s
        log.info("daemon.draining", drain_s=drain_s)
        with self._hurry:
            await self._finish(by=trio.current_time() + drain_s)
        if not self._guests:
            return
        self._turns.turn_away()
        for backend in self._backends:
            backend.stop("the daemon is going down")
        await self._guests.leave(by=trio.current_time() + LAST_WORDS_S)

    async def _finish(self, *, by: float) -> None:
        try:
            await self._guests.hear(by=by)
        finally:  # in a hurry nobody is heard, and all are told
            self._turns.close()
            self._guests.end()
        await self._guests.leave(by=by)

    # --- sockets ----------------------------------------------------------------------

    def _inference_doors(self) -> Iterator[Door]:
        """Give the sockets that backends can serve; all share the room there is.

        At those that are there all the same, clients are told that nobody does.
        """
        config = self._force.config
        entrance = Entrance(self._backends, self._turns, media=self._around.media)
        not_served = dict.fromkeys(self._doors.inherited)
        not_served.pop(ADMIN_SOCKET, None)
        for surface in surfaces(config.listen, self._backends, entrance):
            not_served.pop(surface.socket, None)
            yield Door(
                surface.socket,
                partial(self._serve_client, surface),
                self._around.room,
                in_a_frame,
                is_kept_open=False,
                mode=INFERENCE_MODE,
                group=config.listen.group,
            )
        yield from map(unserved, not_served)

    def _admin_door(self) -> Door:
        config = self._force.config
        is_shared = config.access.admin is not None
        return Door(
            ADMIN_SOCKET,
            self._serve_listener,
            self._force.listeners,
            in_a_reply,
            is_kept_open=True,
            mode=INFERENCE_MODE if is_shared else ADMIN_MODE,
            group=config.listen.group if is_shared else None,
        )

    async def _serve_client(
        self, surface: AnySurface, stream: trio.SocketStream
    ) -> None:
        connection = surface.connect(stream, self._around)
        with self._guests.counting(connection):
            await connection.serve()

    async def _serve_listener(self, stream: trio.SocketStream) -> None:
        peer = peer_of(stream, self._around.identities)
        self._n_listeners += 1
        try:
            await serve_admin(
                stream,
                self._board,
                partial(self._commands.answer, peer=peer),
                self._around,
            )
        finally:
            self._n_listeners -= 1
            self._left.unpark_all()
