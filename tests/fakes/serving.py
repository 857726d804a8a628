"""The parts of a daemon in the test's own event loop: a connection's, or all of them."""

import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import trio
import trio.testing

from inferd import surfaces
from inferd.admission.control import Admission
from inferd.backend.interface import Backend
from inferd.config.settings import AdmissionSettings, Config, LimitSettings
from inferd.fair_limiter import FairLimiter
from inferd.limits.server import MAX_MEDIA_FILES
from inferd.server.admin.running_config import no_config_file
from inferd.server.connection.deps import ConnectionDeps
from inferd.server.connection.disconnect_watch import DisconnectWatch
from inferd.server.connection.limit import ConnectionLimit
from inferd.server.connection.output_quota import OutputQuota
from inferd.server.connection.serve import ClientConnection, Endpoint
from inferd.server.daemon import Daemon
from inferd.server.event_loop.scheduler import LoopScheduler
from inferd.server.inflight import InFlight
from inferd.server.listen.acceptor import Acceptor, ListenerSpec, refusal_frame
from inferd.server.listen.listeners import (
    NO_INHERITED_SOCKETS,
    InheritedSockets,
    Listeners,
)
from inferd.server.media.quota import MediaQuota
from inferd.server.queue.requests import RequestQueue
from inferd.server.services.endpoints import BINDINGS, AnyBinding
from inferd.server.services.pipeline import Pipeline
from inferd.server.telemetry.metrics import Metrics
from inferd.server.telemetry.setup import Telemetry, make_telemetry
from inferd.server.telemetry.status import StatusBoard
from tests.fakes.streams import FrameClient, bare, unix_pair

PATIENCE_S = 3600.0
"""Virtual seconds after which a test that waits has failed."""


def idle_scheduler() -> LoopScheduler:
    """Make a scheduler that nobody runs: to it no work takes time, so no pass is over."""
    return LoopScheduler(clock=lambda: 0.0)


class LocalServer:
    """The inference sockets in the test's event loop, each connection a socketpair."""

    def __init__(
        self,
        *backends: Backend,
        max_active: int = 1,
        max_queued: int = 10,
        max_connections: int = 1000,
        **limits: Any,
    ) -> None:
        self.admission = Admission(max_active=max_active, max_queued=max_queued)
        self.queue = RequestQueue(self.admission)
        settings = msgspec.convert(limits, LimitSettings)
        self.media = MediaQuota(settings, MAX_MEDIA_FILES, self.queue.count_waiting)
        loop = idle_scheduler()
        pipeline = Pipeline(backends, self.queue, media_quota=self.media, loop=loop)
        self.endpoints: dict[str, Endpoint[Any]] = {
            each.surface.socket: cast("Endpoint[Any]", each.endpoint(pipeline))
            for each in BINDINGS
        }
        self.disconnects = DisconnectWatch()
        self.metrics = Metrics()
        self.in_flight = InFlight(self.metrics)
        self.connections: list[ClientConnection[Any]] = []
        self.acceptor = Acceptor(self.metrics, loop)
        self.deps = ConnectionDeps(
            disconnects=self.disconnects,
            in_flight=self.in_flight,
            metrics=self.metrics,
            connection_limit=ConnectionLimit(max_connections),
            line_limiter=FairLimiter(settings.max_large_lines),
            output_quota=OutputQuota(settings.max_unread_bytes),
            media_quota=self.media,
            limits=settings,
            loop=loop,
        )
        self._nursery: trio.Nursery

    @property
    def is_empty(self) -> bool:
        """Whether no request is in flight and nothing is held for one."""
        counts = (
            self.admission.active,
            self.admission.waiting,
            len(self.queue._permits),
        )
        is_read = not self.deps.output_quota.n_bytes and not self.media.held_bytes
        return counts == (0, 0, 0) and is_read and not [*self.in_flight]

    @property
    def n_served(self) -> int:
        """Connections that are open on the server's side."""
        return len(self._nursery.child_tasks)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["LocalServer"]:
        """Serve while inside; a test that takes too long fails."""
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as watching:
                watching.start_soon(self.disconnects.run)
                async with trio.open_nursery() as self._nursery:
                    yield self
                    self._nursery.cancel_scope.cancel()
                watching.cancel_scope.cancel()

    def connect(self, leaf: str = surfaces.INFER.socket) -> FrameClient:
        """Connect a client."""
        ours, theirs = unix_pair()
        spec = self._listener_spec(self.endpoints[leaf])
        self.acceptor.handle(bare(ours), spec, self._nursery)
        return FrameClient(theirs, leaf)

    def _listener_spec(self, endpoint: Endpoint[Any]) -> ListenerSpec:
        async def serve(stream: trio.SocketStream) -> None:
            connection = endpoint.connect(stream, self.deps)
            self.connections.append(connection)
            await connection.serve()

        return ListenerSpec(
            endpoint.surface,
            serve,
            self.deps.connection_limit,
            refusal_frame,
            may_use_reserve_fd=False,
            mode=endpoint.surface.mode,
        )


class RunningDaemon:
    """A whole daemon in a directory of its own."""

    def __init__(self, daemon: Daemon, directory: Path, telemetry: Telemetry) -> None:
        self.daemon = daemon
        self.directory = directory
        self.board: StatusBoard = telemetry.board
        self.metrics = telemetry.metrics
        self.ended = trio.Event()

    @property
    def infer_sock(self) -> Path:
        """Path of its inference socket."""
        return self.directory / surfaces.INFER.socket

    @property
    def admin_sock(self) -> Path:
        """Path of its admin socket."""
        return self.directory / "admin.sock"

    async def connect(self, leaf: str = surfaces.INFER.socket) -> FrameClient:
        """Connect to an inference socket."""
        path = self.directory / leaf
        return FrameClient(await trio.open_unix_socket(path), leaf)

    async def admin(self) -> FrameClient:
        """Connect to the admin socket."""
        return FrameClient(await trio.open_unix_socket(self.admin_sock))

    async def wait_ended(self) -> None:
        """Wait until it has run to its end."""
        with trio.fail_after(PATIENCE_S):
            await self.ended.wait()

    async def run(self) -> None:
        """Run to the end."""
        try:
            await self.daemon.run()
        finally:
            self.ended.set()


def make_daemon(
    directory: Path,
    *backends: Backend,
    read_config: Callable[[], Config] = no_config_file,
    environ: Mapping[str, str] | None = None,
    inherited: InheritedSockets = NO_INHERITED_SOCKETS,
    bindings: Sequence[AnyBinding] = BINDINGS,
    **settings: Any,
) -> RunningDaemon:
    """Make a daemon that is not started.

    Args:
        directory: of its sockets.
        backends: serve its requests.
        read_config: reads its configuration again.
        environ: names the socket of its service manager.
        inherited: sockets that exist already.
        bindings: the inference surfaces.
        settings: whole tables of the configuration, or keys of ``[limits]``.
    """
    names = ("access", "admission", "listen")
    tables = {name: settings.pop(name) for name in names if name in settings}
    config = Config(
        **{"admission": AdmissionSettings(max_active=1), **tables},
        limits=msgspec.convert(settings, LimitSettings),
    )
    telemetry = make_telemetry(environ or {})
    listeners = Listeners(directory, config.listen.group, inherited)
    daemon = Daemon(
        config, listeners, backends, telemetry, read_config, bindings=bindings
    )
    return RunningDaemon(daemon, directory, telemetry)


@contextmanager
def held(directory: Path, *leaves: str) -> Iterator[Callable[[], InheritedSockets]]:
    """Listen on sockets while inside; yield a function that duplicates them."""
    with ExitStack() as stack:
        theirs: dict[str, socket.socket] = {}
        for leaf in leaves:
            theirs[leaf] = stack.enter_context(socket.socket(socket.AF_UNIX))
            theirs[leaf].bind(f"{directory}/{leaf}")
            theirs[leaf].listen(100)
            theirs[leaf].setblocking(False)

        def hand_over() -> InheritedSockets:
            copies = {leaf: sock.dup() for leaf, sock in theirs.items()}
            for sock in copies.values():
                stack.enter_context(sock)
                sock.setblocking(False)
            return copies

        yield hand_over


@asynccontextmanager
async def running(daemon: RunningDaemon) -> AsyncIterator[RunningDaemon]:
    """Run a daemon while inside, from when it is ready; then stop it at once."""
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(daemon.run)
            await ready(daemon)
            yield daemon
            nursery.cancel_scope.cancel()


async def ready(daemon: RunningDaemon) -> None:
    """Wait until a daemon serves requests, or has ended."""
    await trio.testing.wait_all_tasks_blocked()
    assert daemon.infer_sock.exists() or daemon.ended.is_set()
