"""The daemon's task tree: startup, serving, draining and shutdown."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial

import structlog
import trio

from inferd.backend.interface import Backend
from inferd.config.settings import BackendSettings, Config, ConfigError
from inferd.errors import DAEMON_STOPS
from inferd.fair_limiter import FairLimiter
from inferd.server.admin.commands import Commands
from inferd.server.admin.reload import ReloadResult
from inferd.server.admin.reloader import Reloader
from inferd.server.admin.running_config import RunningConfig, no_config_file
from inferd.server.admin.serve import AdminClients, admin_spec, serve_admin
from inferd.server.budgets.budgets import make_budgets
from inferd.server.capacity import make_admission
from inferd.server.connection.deps import ConnectionDeps
from inferd.server.connection.disconnect_watch import DisconnectWatch
from inferd.server.connection.limit import ConnectionLimit
from inferd.server.connection.output_quota import OutputQuota
from inferd.server.connection.registry import ConnectionRegistry
from inferd.server.connection.serve import AnyEndpoint
from inferd.server.event_loop.scheduler import LoopScheduler
from inferd.server.history.ended import EndedRequests
from inferd.server.history.overview import Overviews
from inferd.server.identity.peer import peer_of
from inferd.server.inflight import InFlight
from inferd.server.large_lines.decoder_pool import DecoderPool
from inferd.server.listen.acceptor import Acceptor, ListenerSpec
from inferd.server.listen.inference import InferenceSockets, inference_specs
from inferd.server.listen.listeners import Listeners
from inferd.server.loading.loader import ModelLoader
from inferd.server.loading.store_models import UNREAD, StoreModels
from inferd.server.loading.store_state import n_store_workers
from inferd.server.loading.swap import BackendSwap, SharedModels
from inferd.server.media.quota import make_media_quota
from inferd.server.queue.requests import RequestQueue
from inferd.server.services.endpoints import (
    BINDINGS,
    AnyBinding,
    served_surfaces,
    surfaces_of,
)
from inferd.server.services.pipeline import Pipeline
from inferd.server.telemetry.setup import Telemetry
from inferd.server.telemetry.status import BackendFacts
from inferd.service.bind import ListenError
from inferd.service.garbage import GarbageCollector

log = structlog.get_logger("daemon")

SHUTDOWN_FLUSH_S = 2.0
"""Seconds to send the last frames once the time to drain is over."""


class Daemon:
    """Task tree between the sockets and the backends.

    The nesting of its tasks is the order of shutdown, read from the inside out: clients,
    workers, admin, lock.

    Args:
        config: at the start; ``reload`` changes it.
        listeners: the sockets and the lock.
        backends: run while the daemon serves.
        telemetry: status, notifications and metrics.
        read_config: reads the configuration again; raises ``ConfigError``.
        bindings: the inference surfaces.
        models: those that are loaded on demand.

    Raises:
        ConfigError: a configured user or group does not exist.
    """

    def __init__(  # noqa: PLR0913  # the parts of the process
        self,
        config: Config,
        listeners: Listeners,
        backends: Sequence[Backend],
        telemetry: Telemetry,
        read_config: Callable[[], Config] = no_config_file,
        *,
        bindings: Sequence[AnyBinding] = BINDINGS,
        models: SharedModels | None = None,
    ) -> None:
        self._bindings = bindings
        self._models = models or SharedModels(ModelLoader())
        self._listeners = listeners
        self._backends = [*backends]
        self._board, self._notifier, metrics, _ = telemetry
        self._read_config = read_config
        self._queue = RequestQueue(make_admission(config))
        self._queue.observer = self._models.loader
        media_quota = make_media_quota(config, self._queue.count_waiting)
        loop = LoopScheduler()
        self._deps = deps = ConnectionDeps(
            disconnects=DisconnectWatch(),
            in_flight=InFlight(metrics, EndedRequests(config.limits.max_explained)),
            metrics=metrics,
            connection_limit=ConnectionLimit(config.limits.max_connections),
            line_limiter=FairLimiter(config.limits.max_large_lines),
            output_quota=OutputQuota(config.limits.max_unread_bytes),
            media_quota=media_quota,
            limits=config.limits,
            loop=loop,
            decoders=DecoderPool(loop),
        )
        self._running_config = RunningConfig(
            config=config,
            acceptor=Acceptor(metrics, loop),
            deps=deps,
            admin_limit=ConnectionLimit(config.limits.max_admin_connections),
            queue=self._queue,
            n_backends=len(backends) + n_store_workers(config.models),
            surfaces=surfaces_of(bindings),
        )
        self._budgets = make_budgets(config.backend, metrics)
        self._reloader = Reloader(self._reload, self._notifier)
        self._store = self._make_store(config)
        self._commands = self._make_commands(telemetry)
        self._swap = self._make_swap(config)
        metrics.add_gauges(*self._queue.gauges(), *deps.gauges())
        metrics.backends.backends = self._backends
        self._connections = ConnectionRegistry()
        self._admin_clients = AdminClients()
        self._stop = trio.Event()
        self._scope, self._drain_scope = trio.CancelScope(), trio.CancelScope()
        self._is_ready = self._stop_requested = False
        self._serve_sockets: Callable[[], list[str]] = list

    def _make_swap(self, config: Config) -> BackendSwap:
        def take_names(backends: Sequence[BackendSettings]) -> None:
            self._running_config.take_aliases(backends)
            self._store.close_configured()

        return BackendSwap(self._models, self._backends, config.backend, take_names)

    def _make_store(self, config: Config) -> StoreModels:
        look, names = self._models.look, self._running_config.names
        store = StoreModels(config, look, names, self._board.loading)
        self._board.unread = store.unread
        return store

    def _make_commands(self, telemetry: Telemetry) -> Commands:
        return Commands(
            in_flight=self._deps.in_flight,
            queue=self._queue,
            backends=self._backends,
            metrics=telemetry.metrics,
            drain=self._drain_once,
            reload=self.reload,
            loader=self._models.loader,
            names=self._running_config.names,
            store=self._store,
            budgets=self._budgets,
            log_tail=telemetry.log_tail,
            look=Overviews(
                self._deps.in_flight,
                self._queue,
                self._backends,
                telemetry.metrics,
                lambda: self._board.status,
            ).look,
        )

    def stop(self) -> None:
        """Drain and end; end at once if the daemon is not ready yet.

        A second call ends the time to drain: unfinished requests fail with an error frame.
        """
        if not self._is_ready:
            self._scope.cancel()
        elif self._stop_requested:
            self._drain_scope.cancel()
        self._stop_requested = True
        self._stop.set()

    def _drain_once(self) -> bool:
        """Drain and end, however often it is called; give false before it is ready.

        Unlike ``stop``: when a service manager stops a daemon that already drains, that
        is its first ``stop``.
        """
        if self._is_ready:
            self._stop.set()
        return self._is_ready

    def order_reload(self) -> None:
        """Have the configuration read again, once the daemon is ready."""
        self._reloader.order()

    async def reload(self) -> ReloadResult:
        """Have the configuration read again, once the daemon is ready; wait for the end.

        The settings that can change are applied, and backends that differ are replaced,
        while requests go on.

        Raises:
            ReloadError: it failed, or the daemon drains.

        Cancellation: safe; the reload goes on.
        """
        return await self._reloader.reload()

    async def _reload(self) -> ReloadResult:
        new, running = self._read_config(), self._running_config
        running.check(new)
        await self._store.check(new.models)
        before = running.config.backend
        swapped = await self._swap.change(new.backend)
        reloaded = running.apply(new, swapped.in_force)
        self._budgets.configure(running.config.backend)
        if running.config.backend != before:
            self._store.close_idle()
        failures = [*swapped.failures, *await self._store.change(new.models)]
        failures += self._serve_sockets()
        self._connections.recheck_access(running.acceptor.access)
        if failures:
            raise ConfigError("; ".join(failures))
        log.info("config.reloaded", **reloaded._asdict())
        return reloaded

    async def run(self) -> None:
        """Serve until stopped.

        Raises:
            ListenError: a socket or the lock is not available.
            StartFailedError: a backend did not get ready. Both are raised in groups.
        """
        self._running_config.allocate_fds()
        self._board.facts_of = self._facts_of
        acceptor = self._running_config.acceptor
        acceptor.open()
        with ExitStack() as stack:
            stack.enter_context(closing(acceptor))
            stack.enter_context(self._listeners.locked())
            stack.enter_context(self._deps.loop.measuring())
            collector = GarbageCollector()
            stack.enter_context(collector.collecting())
            stack.enter_context(self._deps.decoders.open())
            stack.enter_context(self._scope)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._deps.disconnects.run)
                nursery.start_soon(self._queue.run)
                nursery.start_soon(self._budgets.run)
                nursery.start_soon(self._deps.loop.run)
                nursery.start_soon(collector.run)
                nursery.start_soon(self._notifier.feed_watchdog)
                with self._listeners.open(nursery, self._admin_spec(), acceptor):
                    await self._run_backends()
                await self._flush_admin()
                nursery.cancel_scope.cancel()
        log.info("daemon.stopped")

    def _facts_of(self, name: str) -> BackendFacts | None:
        states = {backend.name: backend.state for backend in self._backends}
        if name not in states:
            return None
        names, left = self._running_config.names, self._budgets.left(name)
        return BackendFacts(names.aliases_of(name), states[name], left)

    async def _run_backends(self) -> None:
        async with trio.open_nursery() as nursery:
            all_ready = [trio.Event() for _ in self._backends]
            for backend, is_ready in zip(self._backends, all_ready, strict=True):
                keep = self._models.loader.keep_resident
                nursery.start_soon(keep, backend, is_ready.set)
            for is_ready in all_ready:
                await is_ready.wait()
            self._queue.cap_active(
                [backend.capabilities.n_slots for backend in self._backends]
            )
            self._models.open(self._queue)
            nursery.start_soon(self._models.loader.run)
            self._queue.hold(UNREAD)
            await nursery.start(self._store.run, self._swap)
            await self._run_clients()
            nursery.cancel_scope.cancel()

    async def _flush_admin(self) -> None:
        """Send admin clients their queued frames, for ``SHUTDOWN_FLUSH_S`` at most."""
        await self._reloader.wait_told()
        self._board.close()
        with trio.move_on_after(SHUTDOWN_FLUSH_S):
            await self._admin_clients.wait_gone()

    async def _run_clients(self) -> None:
        async with trio.open_nursery() as nursery:
            acceptor = self._running_config.acceptor
            with ExitStack() as stack:
                accept = partial(self._listeners.open, nursery, acceptor=acceptor)
                sockets = InferenceSockets(
                    self._inference_specs(),
                    self._listeners.inherited,
                    accept,
                    acceptor,
                    stack,
                )
                self._serve_sockets = partial(self._serve_those, sockets)
                if faults := self._serve_sockets():
                    raise ListenError("; ".join(faults))
                self._is_ready = True
                self._board.all_ready()
                self._notifier.ready()
                nursery.start_soon(self._reloader.run)
                log.info(
                    "daemon.ready",
                    directory=str(self._listeners.directory),
                    inherited=self._listeners.inherited,
                    sockets=sockets.opened,
                )
                await self._stop.wait()
                self._serve_sockets = list  # a reload may end while it drains
                self._reloader.close()
                self._board.draining()
                self._notifier.stopping()
            await self._drain()
            self._deps.decoders.interrupt()
            nursery.cancel_scope.cancel()

    async def _drain(self) -> None:
        """Finish running and queued requests for ``drain_s`` at most; fail the rest."""
        drain_s = self._running_config.config.limits.drain_s
        log.info("daemon.draining", drain_s=drain_s)
        with self._drain_scope:
            await self._finish(by=trio.current_time() + drain_s)
        if not self._connections:
            return
        self._queue.reject_waiting()
        for backend in self._backends:
            backend.stop(DAEMON_STOPS)
        self._models.loader.stop(DAEMON_STOPS)
        await self._connections.wait_closed(by=trio.current_time() + SHUTDOWN_FLUSH_S)

    async def _finish(self, *, by: float) -> None:
        try:
            await self._running_config.acceptor.wait_started(by=by)
            await self._connections.wait_first_requests(by=by)
        finally:  # also when ``stop`` is called again, which cancels this scope
            self._queue.close()
            self._connections.close_when_idle()
        await self._connections.wait_closed(by=by)

    # --- sockets ----------------------------------------------------------------------

    def _inference_specs(self) -> Iterator[ListenerSpec]:
        """Describe the sockets that backends may serve, which share one connection limit."""
        pipeline = Pipeline(
            self._backends,
            self._queue,
            media_quota=self._deps.media_quota,
            names=self._running_config.names,
            loader=self._models.loader,
            store=self._store,
            budgets=self._budgets,
            loop=self._deps.loop,
        )
        return inference_specs(
            (each.endpoint(pipeline) for each in self._bindings),
            self._deps.connection_limit,
            self._serve_client,
            self._listeners.group,
        )

    def _serve_those(self, sockets: InferenceSockets) -> list[str]:
        """Serve clients on the sockets that backends can serve now, and on no others.

        While a model that the configuration names cannot be read, nobody knows what it
        serves: then no socket stops.

        Returns:
            Reasons for which some could not be opened.
        """
        config = self._running_config.config
        surfaces = served_surfaces(config, self._backends, self._bindings)
        served = {each.socket for each in surfaces}
        kept = sockets.served if self._store.lacks_named else set()
        return sockets.serve(served | kept)

    def _admin_spec(self) -> ListenerSpec:
        config, limit = self._running_config.config, self._running_config.admin_limit
        return admin_spec(config, limit, self._serve_admin_client)

    async def _serve_client(
        self, endpoint: AnyEndpoint, stream: trio.SocketStream
    ) -> None:
        connection = endpoint.connect(stream, self._deps)
        with self._connections.track(connection):
            await connection.serve()

    async def _serve_admin_client(self, stream: trio.SocketStream) -> None:
        peer = peer_of(stream, self._deps.identities)
        answer = partial(self._commands.answer, peer=peer)
        with self._admin_clients.counted():
            await serve_admin(stream, self._board, answer, self._deps)
