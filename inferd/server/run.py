"""The task tree, from the lock to the last goodbye."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import structlog
import trio

from inferd.admission.gate import Admission
from inferd.backend import Backend
from inferd.config import Config
from inferd.engine.available import available_bytes
from inferd.fit import Budget
from inferd.limits import MAX_ACTIVE_DEFAULT_CAP
from inferd.paths import ADMIN_SOCKET, LOCK_NAME
from inferd.server.admin import serve_admin
from inferd.server.audience import Audience
from inferd.server.commands import Commands
from inferd.server.connection import AnySurface, Surroundings
from inferd.server.entrance import Entrance
from inferd.server.hangup import Hangups
from inferd.server.listen import (
    ADMIN_MODE,
    INFERENCE_MODE,
    bind,
    locked,
    make_directory,
)
from inferd.server.metrics import Metrics
from inferd.server.register import Register
from inferd.server.room import (
    Room,
    Serve,
    in_room,
    refuse_in_silence,
    refuse_with_a_frame,
)
from inferd.server.surfaces import surfaces
from inferd.server.turns import Turns

log = structlog.get_logger("daemon")

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

    def end(self) -> None:
        """Close it as soon as nothing is being answered."""


class _Door(NamedTuple):
    """How a socket is opened, and who serves those who come in."""

    serve: Serve
    mode: int
    group: str | None


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
    ) -> None:
        self._config = config
        self._directory = directory
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
        make_directory(self._directory, group=self._config.listen.group)
        with locked(self._directory / LOCK_NAME), self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._around.hangups.run)
                nursery.start_soon(self._notifier.feed_watchdog)
                with self._open(nursery, ADMIN_SOCKET, self._admin_door()):
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
                for leaf, door in self._inference_doors():
                    doors.enter_context(self._open(nursery, leaf, door))
                self._is_ready = True
                self._board.all_ready()
                self._notifier.ready()
                log.info("daemon.ready", directory=str(self._directory))
                await self._stop.wait()
                self._board.draining()
                self._notifier.stopping()
            await self._drain()
            nursery.cancel_scope.cancel()

    async def _drain(self) -> None:
        """Finish what is running and queued, as far as there is time; end the rest."""
        log.info("daemon.draining", drain_s=self._config.limits.drain_s)
        self._turns.close()
        for connection in self._connections:
            connection.end()
        if await self._empty(within_s=self._config.limits.drain_s):
            return
        self._turns.turn_away()
        for backend in self._backends:
            backend.stop("the daemon is going down")
        await self._empty(within_s=LAST_WORDS_S)

    async def _empty(self, *, within_s: float) -> bool:
        """Wait for every client to have its answer and go; false if some have not."""
        with trio.move_on_after(within_s):
            while self._connections:
                await self._left.park()
        return not self._connections

    # --- sockets ----------------------------------------------------------------------

    @contextmanager
    def _open(self, clients: trio.Nursery, leaf: str, door: _Door) -> Iterator[None]:
        """Bind a socket and let clients in while inside; then unlink it."""
        path = self._directory / leaf
        listener = bind(path, mode=door.mode, group=door.group)
        accepting = trio.CancelScope()
        clients.start_soon(_accept, listener, door.serve, clients, accepting)
        try:
            yield
        finally:
            accepting.cancel()
            path.unlink(missing_ok=True)

    def _inference_doors(self) -> Iterator[tuple[str, _Door]]:
        """Give the sockets that backends can serve; all share the room there is."""
        entrance = Entrance(self._backends, self._turns)
        room = Room(self._config.limits.max_connections)
        for surface in surfaces(self._config.listen, self._backends, entrance):
            serve = partial(self._serve_client, surface)
            yield (
                surface.socket,
                _Door(
                    in_room(room, serve, refuse_with_a_frame),
                    INFERENCE_MODE,
                    self._config.listen.group,
                ),
            )

    def _admin_door(self) -> _Door:
        room = Room(self._config.limits.max_admin_connections)
        return _Door(
            in_room(room, self._serve_listener, refuse_in_silence), ADMIN_MODE, None
        )

    async def _serve_client(
        self, surface: AnySurface, stream: trio.SocketStream
    ) -> None:
        connection = surface.connect(stream, self._around)
        self._connections.add(connection)
        if self._stop.is_set():
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


async def _accept(
    listener: trio.SocketListener,
    serve: Serve,
    clients: trio.Nursery,
    scope: trio.CancelScope,
) -> None:
    with scope:
        await trio.serve_listeners(serve, [listener], handler_nursery=clients)
