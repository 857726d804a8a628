"""The task tree, from the lock to the last goodbye."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

import structlog
import trio

from inferd.admission.gate import Admission
from inferd.backend import Backend
from inferd.config import Config
from inferd.engine.available import available_bytes
from inferd.fit import Budget
from inferd.limits import MAX_ACTIVE_DEFAULT_CAP
from inferd.paths import ADMIN_SOCKET
from inferd.server.admin import serve_admin
from inferd.server.audience import Audience
from inferd.server.commands import Commands
from inferd.server.connection import AnySurface, Surroundings
from inferd.server.doors import Doors, Inherited
from inferd.server.entrance import Entrance
from inferd.server.hangup import Hangups
from inferd.server.metrics import Metrics
from inferd.server.register import Register
from inferd.server.room import (
    Room,
    Serve,
    in_room,
    refuse_in_silence,
    refuse_unserved,
    refuse_with_a_frame,
)
from inferd.server.surfaces import surfaces
from inferd.server.turns import Turns

log = structlog.get_logger("daemon")

LAST_CALL_S: Final = 1.0
"""Seconds, of those to drain, that a client who was let in has to ask its first question:
at an inherited socket the next one is let in by the next daemon, and loses nothing."""

HEARING_S: Final = 0.02
"""Seconds between two looks whether they have: a few turns of the event loop."""

NONE_INHERITED: Final[Inherited] = MappingProxyType({})

LAST_WORDS_S = 2.0
"""Seconds for the last frames to be written once the time to drain is over."""


def active_requests(config: Config) -> int:
    """How many requests run at once: as configured, else the cores, up to a cap."""
    cores = len(os.sched_getaffinity(0))
    return config.admission.max_active or min(cores, MAX_ACTIVE_DEFAULT_CAP)


def make_gate(config: Config) -> Admission:
    """Make the gate that is configured."""
    return Admission(
        max_active=active_requests(config),
        max_queued=config.admission.max_queued,
        max_queued_tokens=config.admission.max_queued_tokens,
        max_queued_bytes=config.admission.max_queued_bytes,
    )


def memory_budget(config: Config) -> Budget:
    """What the models may take: as configured, else what is there, less the reserve."""
    n_bytes = config.memory.budget
    if n_bytes is None:
        n_bytes = max(0, available_bytes() - config.memory.reserve)
    return Budget(
        n_bytes=n_bytes,
        n_slots=active_requests(config),
        slots_are_set=config.admission.max_active is not None,
    )


class Ends(Protocol):
    """A connection, as a daemon that drains sees it."""

    has_asked: bool

    def end(self) -> None:
        """Close it as soon as nothing is being answered."""


class Daemon:
    """Everything between the sockets and the backends.

    The nesting of its tasks is the order of shutdown, read from the inside out: clients,
    workers, admin, lock.
    """

    def __init__(
        self,
        config: Config,
        directory: Path,
        backends: Sequence[Backend],
        audience: Audience,
        *,
        inherited: Inherited = NONE_INHERITED,
    ) -> None:
        self._config = config
        self._directory = directory
        self._doors = Doors(directory, config.listen.group, inherited)
        self._backends = backends
        self._board, self._notifier, metrics = audience
        self._turns = Turns(make_gate(config))
        self._around = Surroundings(
            hangups=Hangups(),
            register=Register(metrics),
            write_timeout_s=config.limits.write_timeout_s,
        )
        self._commands = Commands(
            register=self._around.register,
            turns=self._turns,
            backends=backends,
            metrics=metrics,
            drain=self._drain_once,
        )
        self._watch_gate(metrics)
        self._connections: set[Ends] = set()
        self._n_listeners = 0
        self._left = trio.lowlevel.ParkingLot()
        self._stop = trio.Event()
        self._scope = trio.CancelScope()
        self._is_ready = False
        self._is_closed = False

    def _watch_gate(self, metrics: Metrics) -> None:
        turns = self._turns
        metrics.watch("active_requests", "Requests that run.", turns.count_active)
        metrics.watch("queued_requests", "Requests that wait.", turns.count_waiting)
        metrics.watch(
            "queued_tokens",
            "Tokens of those that wait, as far as they are counted.",
            turns.count_waiting_tokens,
        )
        metrics.watch("queued_bytes", "Bytes of them.", turns.count_waiting_bytes)

    def stop(self) -> None:
        """Drain and end; asked twice, or before it was ready, end at once."""
        if self._stop.is_set() or not self._is_ready:
            self._scope.cancel()
        self._stop.set()

    def _drain_once(self) -> bool:
        """Drain and end, however often it is asked; false before it is ready."""
        if self._is_ready and not self._stop.is_set():
            self.stop()
        return self._is_ready

    async def run(self) -> None:
        """Serve until stopped.

        Raises:
            ListenError: a socket or the lock cannot be had.
            StartFailedError: a backend did not get ready. Both come in groups.
        """
        with self._doors.locked(), self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._around.hangups.run)
                nursery.start_soon(self._notifier.feed_watchdog)
                with self._doors.open(nursery, ADMIN_SOCKET, self._admin()):
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
                for leaf, serve in self._inference():
                    doors.enter_context(self._doors.open(nursery, leaf, serve))
                self._is_ready = True
                self._board.all_ready()
                self._notifier.ready()
                log.info(
                    "daemon.ready",
                    directory=str(self._directory),
                    inherited=self._doors.inherited,
                )
                await self._stop.wait()
                self._board.draining()
                self._notifier.stopping()
            await self._drain()
            nursery.cancel_scope.cancel()

    async def _drain(self) -> None:
        """Finish what is running and queued, as far as there is time; end the rest."""
        log.info("daemon.draining", drain_s=self._config.limits.drain_s)
        deadline = trio.current_time() + self._config.limits.drain_s
        await self._last_call(min(deadline, trio.current_time() + LAST_CALL_S))
        self._is_closed = True
        self._turns.close()
        for connection in self._connections:
            connection.end()
        if await self._empty(by=deadline):
            return
        self._turns.turn_away()
        for backend in self._backends:
            backend.stop("the daemon is going down")
        await self._empty(by=trio.current_time() + LAST_WORDS_S)

    async def _last_call(self, deadline: float) -> None:
        """Hear those who were let in and have not asked anything yet."""
        with trio.move_on_at(deadline):
            have_asked = False
            while not have_asked:
                await trio.sleep(HEARING_S)
                have_asked = all(each.has_asked for each in self._connections)

    async def _empty(self, *, by: float) -> bool:
        """Wait for every client to have its answer and go; false if some have not."""
        with trio.move_on_at(by):
            while self._connections:
                await self._left.park()
        return not self._connections

    # --- sockets ----------------------------------------------------------------------

    def _inference(self) -> Iterator[tuple[str, Serve]]:
        """Give the sockets that backends can serve; all share the room there is.

        At those that are there all the same, clients are told that nobody does.
        """
        entrance = Entrance(self._backends, self._turns)
        room = Room(self._config.limits.max_connections)
        unserved = dict.fromkeys(self._doors.inherited)
        for surface in surfaces(self._config.listen, self._backends, entrance):
            unserved.pop(surface.socket, None)
            serve = partial(self._serve_client, surface)
            yield surface.socket, in_room(room, serve, refuse_with_a_frame)
        for leaf in unserved:
            if leaf != ADMIN_SOCKET:
                yield leaf, in_room(room, refuse_unserved(leaf), refuse_with_a_frame)

    def _admin(self) -> Serve:
        room = Room(self._config.limits.max_admin_connections)
        return in_room(room, self._serve_listener, refuse_in_silence)

    async def _serve_client(
        self, surface: AnySurface, stream: trio.SocketStream
    ) -> None:
        connection = surface.connect(stream, self._around)
        self._connections.add(connection)
        if self._is_closed:
            connection.end()
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            self._left.unpark_all()

    async def _serve_listener(self, stream: trio.SocketStream) -> None:
        self._n_listeners += 1
        try:
            await serve_admin(
                stream,
                self._board,
                self._commands,
                hangups=self._around.hangups,
                write_timeout_s=self._config.limits.write_timeout_s,
            )
        finally:
            self._n_listeners -= 1
            self._left.unpark_all()
