"""The parts of a daemon in the test's own event loop: a connection's, or all of them."""

import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio
import trio.testing

from inferd.admission.gate import Admission
from inferd.backend import Backend
from inferd.config import AdmissionSettings, Config, LimitSettings, Listen
from inferd.paths import EMBED_SOCKET, INFER_SOCKET, INFER_V2_SOCKET, RERANK_SOCKET
from inferd.server.audience import Audience, gather
from inferd.server.connection import AnySurface, Connection, Surface, Surroundings
from inferd.server.doors import Inherited
from inferd.server.encode import embed_service, rerank_service
from inferd.server.entrance import Entrance
from inferd.server.generate import blocks_service, text_service
from inferd.server.hangup import Hangups
from inferd.server.metrics import Metrics
from inferd.server.register import Register
from inferd.server.room import Room, in_room, refuse_with_a_frame
from inferd.server.run import NONE_INHERITED, Daemon
from inferd.server.status import StatusBoard
from inferd.server.turns import Turns
from inferd.wire.codec import (
    decode_blocks,
    decode_embed,
    decode_generate,
    decode_rerank,
)
from tests.fakes.streams import FrameClient, unix_pair

PATIENCE_S = 3600.0
"""Virtual seconds after which a test that waits has failed."""


class House:
    """Connections to every surface, each over a socketpair."""

    def __init__(
        self,
        *backends: Backend,
        max_active: int = 1,
        max_queued: int = 10,
        write_timeout_s: float = 60.0,
    ) -> None:
        self.gate = Admission(max_active=max_active, max_queued=max_queued)
        self.turns = Turns(self.gate)
        entrance = Entrance(backends, self.turns)
        self.surfaces: dict[str, AnySurface] = {
            INFER_SOCKET: Surface(
                INFER_SOCKET, decode_generate, text_service(entrance)
            ),
            INFER_V2_SOCKET: Surface(
                INFER_V2_SOCKET, decode_blocks, blocks_service(entrance)
            ),
            EMBED_SOCKET: Surface(EMBED_SOCKET, decode_embed, embed_service(entrance)),
            RERANK_SOCKET: Surface(
                RERANK_SOCKET, decode_rerank, rerank_service(entrance)
            ),
        }
        self.hangups = Hangups()
        self.metrics = Metrics()
        self.register = Register(self.metrics)
        self.connections: list[Connection[Any]] = []
        self._room = Room(1000)
        self._around = Surroundings(
            hangups=self.hangups,
            register=self.register,
            write_timeout_s=write_timeout_s,
        )
        self._nursery: trio.Nursery

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of any request."""
        places = (self.gate.active, self.gate.waiting, len(self.turns._turns))
        return places == (0, 0, 0) and not [*self.register]

    @property
    def n_served(self) -> int:
        """Connections that are open on this side."""
        return len(self._nursery.child_tasks)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["House"]:
        """Serve while inside; a test that takes too long fails."""
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as watching:
                watching.start_soon(self.hangups.run)
                async with trio.open_nursery() as self._nursery:
                    yield self
                    self._nursery.cancel_scope.cancel()
                watching.cancel_scope.cancel()

    def connect(self, leaf: str = INFER_SOCKET) -> FrameClient:
        """Let one client in."""
        ours, theirs = unix_pair()
        self._nursery.start_soon(self._serve, ours, self.surfaces[leaf])
        return FrameClient(theirs, leaf)

    async def _serve(self, stream: trio.SocketStream, surface: AnySurface) -> None:
        connection = surface.connect(stream, self._around)
        self.connections.append(connection)
        async with stream:
            serve = partial(_serve, connection)
            await in_room(self._room, serve, refuse_with_a_frame)(stream)


async def _serve(connection: Connection[Any], _: trio.SocketStream) -> None:
    await connection.serve()


class RunningDaemon:
    """A whole daemon in a directory of its own."""

    def __init__(self, daemon: Daemon, directory: Path, audience: Audience) -> None:
        self.daemon = daemon
        self.directory = directory
        self.board: StatusBoard = audience.board
        self.metrics = audience.metrics
        self.ended = trio.Event()

    @property
    def infer_sock(self) -> Path:
        """Where its inference socket is."""
        return self.directory / INFER_SOCKET

    @property
    def admin_sock(self) -> Path:
        """Where its admin socket is."""
        return self.directory / "admin.sock"

    async def connect(self, leaf: str = INFER_SOCKET) -> FrameClient:
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
    admission: AdmissionSettings | None = None,
    listen: Listen | None = None,
    environ: Mapping[str, str] | None = None,
    inherited: Inherited = NONE_INHERITED,
    **limits: Any,
) -> RunningDaemon:
    """Put a daemon together that is not started."""
    config = Config(
        listen=listen or Listen(),
        admission=admission or AdmissionSettings(max_active=1),
        limits=msgspec.convert(limits, LimitSettings),
    )
    audience = gather(environ or {})
    daemon = Daemon(config, directory, backends, audience, inherited=inherited)
    return RunningDaemon(daemon, directory, audience)


@contextmanager
def held(directory: Path, *leaves: str) -> Iterator[Callable[[], Inherited]]:
    """Listen at sockets while inside; give what hands them over, any number of times."""
    with ExitStack() as stack:
        theirs: dict[str, socket.socket] = {}
        for leaf in leaves:
            theirs[leaf] = stack.enter_context(socket.socket(socket.AF_UNIX))
            theirs[leaf].bind(f"{directory}/{leaf}")
            theirs[leaf].listen(100)
            theirs[leaf].setblocking(False)

        def hand_over() -> Inherited:
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
    """Wait until a daemon takes requests, or until it has nothing more to do."""
    await trio.testing.wait_all_tasks_blocked()
    assert daemon.infer_sock.exists() or daemon.ended.is_set()
