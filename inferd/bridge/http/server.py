"""The connections of the bridge: accepted up to a bound, and finished at the end."""

import socket
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework
from starlette.types import ASGIApp

from inferd.bridge.http.connection import ByteStream, HttpConnection
from inferd.bridge.identity.caller import HttpPeer
from inferd.bridge.identity.tcp_owner import TcpEnd
from inferd.client.peer_check import uid_of
from inferd.config.bridge import BridgeSettings
from inferd.limits.bridge import BODY_QUEUE_EVENTS, CLOSE_S, HANDSHAKE_S

ACCEPT_RETRY_S: Final = 0.1
"""Seconds until the next attempt where the kernel has no descriptor left, or all connections
are busy."""


class HttpServer:
    """Serves HTTP connections.

    Args:
        app: is called for each request.
        settings: the bounds.
        tls: for TLS; ``None`` without.
        failed: is told of a bug that has ended a connection, and that one alone.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: BridgeSettings,
        tls: ssl.SSLContext | None,
        failed: Callable[[Exception], None],
    ) -> None:
        self._app = ASGIWrapper(cast("ASGIFramework", app))
        self._settings = settings
        self._tls = tls
        self._failed = failed
        self._config = _hypercorn_config(settings)
        self._context = WorkerContext(None)
        self._connections: set[HttpConnection] = set()
        self._n_open = 0
        self._has_room = trio.Condition()

    @property
    def n_connections(self) -> int:
        """Connections that are open."""
        return self._n_open

    async def serve(
        self,
        socks: Sequence[socket.socket],
        stop: trio.Event,
        overdue: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve the connections to listening sockets until told to stop.

        Then no further ones are accepted, idle ones are closed, and answers have
        ``drain_s`` to finish.

        Args:
            socks: they listen.
            stop: set to stop.
            overdue: is called where that was not enough: has answers fail, for which they
                have ``CLOSE_S``.
        """
        listeners = [
            trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in socks
        ]
        async with trio.open_nursery() as draining:
            async with trio.open_nursery() as connections:
                async with trio.open_nursery() as accepting:
                    for listener in listeners:
                        accepting.start_soon(self._accept_all, listener, connections)
                    await stop.wait()
                    accepting.cancel_scope.cancel()
                for listener in listeners:
                    await listener.aclose()
                await self._context.terminated.set()
                for each in self._connections:
                    draining.start_soon(each.close_if_idle)
                draining.start_soon(self._end, connections.cancel_scope, overdue)
            draining.cancel_scope.cancel()

    async def _end(self, scope: trio.CancelScope, overdue: Callable[[], None]) -> None:
        """End what is not finished in time."""
        await trio.sleep(self._settings.drain_s)
        overdue()
        await trio.sleep(CLOSE_S)
        scope.cancel()

    async def _accept_all(
        self, listener: trio.SocketListener, nursery: trio.Nursery
    ) -> None:
        while True:
            await self._make_room()
            try:
                stream = await listener.accept()
            except OSError:  # no descriptor, or a connection that has ended already
                await trio.sleep(ACCEPT_RETRY_S)
                continue
            self._n_open += 1
            nursery.start_soon(self._serve_one, stream)

    async def _make_room(self) -> None:
        """Wait for room; an idle connection of who has most connections makes it.

        It is the one that has been idle longest; a new one has time to send something. There
        may be one connection more for each further listener.
        """
        while self._n_open >= self._settings.max_connections:
            found = self._most_idle()
            if found is not None and found.may_go_at <= trio.current_time():
                await found.evict()
            with trio.move_on_after(ACCEPT_RETRY_S):
                async with self._has_room:
                    if self._n_open >= self._settings.max_connections:
                        await self._has_room.wait()

    def _most_idle(self) -> HttpConnection | None:
        n_held = Counter(each.peer.holder for each in self._connections)
        idle = [each for each in self._connections if each.is_idle]
        return max(
            idle,
            key=lambda each: (n_held[each.peer.holder], -each.idle_since),
            default=None,
        )

    async def _serve_one(self, stream: trio.SocketStream) -> None:
        try:
            with suppress(OSError):
                peer = peer_of(stream.socket)
                if (ready := await self._with_tls(stream)) is not None:
                    await self._serve_http(ready, peer)
        except Exception as error:  # noqa: BLE001  # a bug
            self._failed(error)
        finally:
            self._n_open -= 1
            with trio.CancelScope(shield=True):
                with trio.move_on_after(0):
                    await stream.aclose()
                async with self._has_room:
                    self._has_room.notify()

    async def _with_tls(self, stream: trio.SocketStream) -> ByteStream | None:
        """Do the handshake; ``None`` if it fails. Unix sockets have no TLS."""
        if self._tls is None or stream.socket.family == socket.AF_UNIX:
            return stream
        secured = trio.SSLStream(
            stream, self._tls, server_side=True, https_compatible=True
        )
        try:
            with trio.fail_after(HANDSHAKE_S):
                await secured.do_handshake()
        except (trio.BrokenResourceError, trio.TooSlowError):
            return None
        return secured

    async def _serve_http(self, stream: ByteStream, peer: HttpPeer) -> None:
        connection = HttpConnection(
            self._app,
            stream,
            peer,
            config=self._config,
            settings=self._settings,
            context=self._context,
        )
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)


def peer_of(sock: trio.socket.SocketType) -> HttpPeer:
    """Ask the kernel about the other end of a connection."""
    if sock.family == socket.AF_UNIX:
        return HttpPeer(uid=uid_of(sock))
    client, server = (
        TcpEnd(*end[:2]) for end in (sock.getpeername(), sock.getsockname())
    )
    return HttpPeer(client=client, server=server)


def _hypercorn_config(settings: BridgeSettings) -> Config:
    config = Config()
    config.accesslog = config.errorlog = None
    config.h11_max_incomplete_size = settings.max_head_bytes
    config.include_server_header = False
    config.max_app_queue_size = BODY_QUEUE_EVENTS
    return config
