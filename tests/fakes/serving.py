"""The parts of a daemon in the test's own event loop: a connection's, or all of them."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio
import trio.testing

from inferd.admission import Admission
from inferd.backend import Backend
from inferd.config import AdmissionSettings, Config, LimitSettings
from inferd.server.connection import Connection, Surface
from inferd.server.dispatch import Service
from inferd.server.generate import GenerateService
from inferd.server.hangup import Hangups
from inferd.server.notify import Notifier
from inferd.server.room import Room, in_room, refuse_with_a_frame
from inferd.server.run import Daemon
from inferd.server.status import StatusBoard
from inferd.server.turns import Turns
from inferd.wire.codec import decode_request
from inferd.wire.requests import GenerateRequest
from tests.fakes.streams import FrameClient, unix_pair

PATIENCE_S = 3600.0
"""Virtual seconds after which a test that waits has failed."""


class House:
    """Connections to one service, each over a socketpair."""

    def __init__(
        self,
        *backends: Backend,
        max_active: int = 1,
        max_queued: int = 10,
        write_timeout_s: float = 60.0,
    ) -> None:
        self.gate = Admission(max_active=max_active, max_queued=max_queued)
        self.turns = Turns(self.gate)
        self.service: Service = GenerateService(backends, self.turns)
        self.decode: Callable[[bytes], GenerateRequest] = decode_request
        self.hangups = Hangups()
        self.connections: list[Connection] = []
        self._room = Room(1000)
        self._write_timeout_s = write_timeout_s
        self._nursery: trio.Nursery

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

    def connect(self) -> FrameClient:
        """Let one client in."""
        ours, theirs = unix_pair()
        self._nursery.start_soon(self._serve, ours)
        return FrameClient(theirs)

    async def _serve(self, stream: trio.SocketStream) -> None:
        surface = Surface("infer.sock", self.decode, self.service)
        connection = Connection(
            stream,
            surface,
            hangups=self.hangups,
            write_timeout_s=self._write_timeout_s,
        )
        self.connections.append(connection)
        async with stream:
            serve = partial(_serve, connection)
            await in_room(self._room, serve, refuse_with_a_frame)(stream)


async def _serve(connection: Connection, _: trio.SocketStream) -> None:
    await connection.serve()


class RunningDaemon:
    """A whole daemon in a directory of its own."""

    def __init__(self, daemon: Daemon, directory: Path, board: StatusBoard) -> None:
        self.daemon = daemon
        self.directory = directory
        self.board = board
        self.ended = trio.Event()

    @property
    def infer_sock(self) -> Path:
        """Where its inference socket is."""
        return self.directory / "infer.sock"

    @property
    def admin_sock(self) -> Path:
        """Where its admin socket is."""
        return self.directory / "admin.sock"

    async def connect(self) -> FrameClient:
        """Connect to the inference socket."""
        return FrameClient(await trio.open_unix_socket(self.infer_sock))

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
    environ: Mapping[str, str] | None = None,
    **limits: Any,
) -> RunningDaemon:
    """Put a daemon together that is not started."""
    config = Config(
        admission=admission or AdmissionSettings(max_active=1),
        limits=msgspec.convert(limits, LimitSettings),
    )
    notifier = Notifier(environ or {})
    board = StatusBoard(notifier.follow)
    daemon = Daemon(config, directory, backends, board=board, notifier=notifier)
    return RunningDaemon(daemon, directory, board)


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
