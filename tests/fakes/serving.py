"""The parts of a daemon in the test's own event loop: a connection's, or all of them."""

import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio
import trio.testing

from inferd.admission.gate import Admission
from inferd.backend import Backend
from inferd.config import AdmissionSettings, Config, LimitSettings
from inferd.paths import EMBED_SOCKET, INFER_SOCKET, INFER_V2_SOCKET, RERANK_SOCKET
from inferd.server.audience import Audience, gather
from inferd.server.connection import Connection, Surface
from inferd.server.doors import NONE_INHERITED, Doors, Inherited
from inferd.server.encode import embed_service, rerank_service
from inferd.server.entrance import Entrance
from inferd.server.force import nothing_to_read
from inferd.server.generate import blocks_service, text_service
from inferd.server.hangup import Hangups
from inferd.server.holdings import MediaRoom
from inferd.server.large_lines import LargeLines
from inferd.server.limits import MAX_MEDIA_FILES
from inferd.server.listen import INFERENCE_MODE
from inferd.server.metrics import Metrics
from inferd.server.reception import Door, Reception, in_a_frame
from inferd.server.register import Register
from inferd.server.room import Room
from inferd.server.run import Daemon
from inferd.server.status import StatusBoard
from inferd.server.surfaces import AnySurface
from inferd.server.surroundings import Surroundings
from inferd.server.turns import Turns
from inferd.server.unread import Unread
from inferd.wire.codec import (
    decode_blocks,
    decode_embed,
    decode_generate,
    decode_rerank,
)
from tests.fakes.streams import FrameClient, bare, unix_pair

PATIENCE_S = 3600.0
"""Virtual seconds after which a test that waits has failed."""


class House:
    """Connections to every surface, each over a socketpair."""

    def __init__(
        self,
        *backends: Backend,
        max_active: int = 1,
        max_queued: int = 10,
        n_places: int = 1000,
        **limits: Any,
    ) -> None:
        self.gate = Admission(max_active=max_active, max_queued=max_queued)
        self.turns = Turns(self.gate)
        settings = msgspec.convert(limits, LimitSettings)
        self.media = MediaRoom(settings, MAX_MEDIA_FILES, self.turns.count_waiting)
        entrance = Entrance(backends, self.turns, media=self.media)
        self.surfaces: dict[str, AnySurface] = {
            INFER_SOCKET: Surface(
                INFER_SOCKET, decode_generate, text_service(entrance)
            ),
            INFER_V2_SOCKET: Surface(
                INFER_V2_SOCKET,
                decode_blocks,
                blocks_service(entrance),
                takes_media=True,
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
        self.reception = Reception(self.metrics)
        self.around = Surroundings(
            hangups=self.hangups,
            register=self.register,
            room=Room(n_places),
            large_lines=LargeLines(settings.max_large_lines),
            unread=Unread(settings.max_unread_bytes),
            media=self.media,
            limits=settings,
        )
        self._nursery: trio.Nursery

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of any request."""
        places = (self.gate.active, self.gate.waiting, len(self.turns._turns))
        is_read = not self.around.unread.n_bytes and not self.media.held_bytes
        return places == (0, 0, 0) and is_read and not [*self.register]

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
        door = self._door(self.surfaces[leaf])
        self.reception.receive(bare(ours), door, self._nursery)
        return FrameClient(theirs, leaf)

    def _door(self, surface: AnySurface) -> Door:
        async def serve(stream: trio.SocketStream) -> None:
            connection = surface.connect(stream, self.around)
            self.connections.append(connection)
            await connection.serve()

        return Door(
            surface.socket,
            serve,
            self.around.room,
            in_a_frame,
            is_kept_open=False,
            mode=INFERENCE_MODE,
        )


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
    read_config: Callable[[], Config] = nothing_to_read,
    environ: Mapping[str, str] | None = None,
    inherited: Inherited = NONE_INHERITED,
    **settings: Any,
) -> RunningDaemon:
    """Put a daemon together that is not started.

    Args:
        directory: of its sockets.
        backends: what serves.
        read_config: reads its configuration again.
        environ: where it finds its service manager.
        inherited: sockets that are there already.
        settings: whole tables of the configuration, or keys of ``[limits]``.
    """
    names = ("access", "admission", "listen")
    tables = {name: settings.pop(name) for name in names if name in settings}
    config = Config(
        **{"admission": AdmissionSettings(max_active=1), **tables},
        limits=msgspec.convert(settings, LimitSettings),
    )
    audience = gather(environ or {})
    doors = Doors(directory, config.listen.group, inherited)
    daemon = Daemon(config, doors, backends, audience, read_config)
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
