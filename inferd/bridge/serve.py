"""The composition root: build the bridge from its settings and run it until it ends."""

import os
import signal
import socket
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from inferd.bridge.access_log import BridgeLog, kind_of
from inferd.bridge.http.app import BridgeApp
from inferd.bridge.http.guard import LOCAL_NAMES, HeadRules
from inferd.bridge.http.listen import (
    Place,
    bind,
    parse_place,
    tls_context,
)
from inferd.bridge.http.server import HttpServer
from inferd.bridge.identity.caller import Callers
from inferd.bridge.identity.token_file import ApiTokens, default_path, read_tokens
from inferd.bridge.media.decoders import MediaDecoders
from inferd.bridge.upstream.daemon import DaemonClient
from inferd.config.bridge import BridgeSettings


@dataclass(frozen=True, kw_only=True)
class BridgeOptions:
    """What the command line says, and the settings of the file."""

    settings: BridgeSettings
    listen: str | None = None
    """Instead of ``bridge.listen``."""
    directory: Path | None = None
    """Of the daemon's sockets; ``None`` for the default ones."""
    is_insecure: bool = False
    """Whether other addresses than loopback need no TLS."""


def run_bridge(options: BridgeOptions) -> None:
    """Serve until SIGTERM or SIGINT; the next one ends it at once.

    Raises:
        BridgeListenError: it cannot listen as configured.
        TokenFileError: the tokens cannot be read.
    """
    settings = options.settings
    place = parse_place(options.listen or settings.listen)
    tls = tls_context(settings, place, is_insecure=options.is_insecure)
    tokens = Path(settings.tokens) if settings.tokens else default_path()
    read_tokens(tokens)
    log = BridgeLog()
    decoders = MediaDecoders(settings, log)
    app = _make_app(options, place, tokens, log, decoders)
    server = HttpServer(app, settings, tls, partial(_log_bug, log))
    app.metrics.gauge(
        "inferd_bridge_connections", "HTTP connections.", lambda: server.n_connections
    )
    sock = bind(place)
    scheme = "https" if tls else "http"
    where = str(place.path) if place.path else f"{scheme}://{_name_of(sock)}"
    log.write("info", "bridge.listening", address=where)
    try:
        trio.run(_run_until_signal, server, sock, log)
    finally:
        decoders.close()
        if place.path is not None:
            place.path.unlink(missing_ok=True)
        log.write("info", "bridge.stopped")
        log.flush()


def _log_bug(log: BridgeLog, error: Exception) -> None:
    """Log what has ended a connection."""
    log.write("error", "http_connection.failed", error=kind_of(error))


def _make_app(
    options: BridgeOptions,
    place: Place,
    tokens: Path,
    log: BridgeLog,
    decoders: MediaDecoders,
) -> BridgeApp:
    """Build the application."""
    settings = options.settings
    daemon = DaemonClient(
        options.directory,
        max_requests=settings.max_requests,
        is_gateway=settings.gateway,
        decoders=decoders,
    )
    callers = Callers(ApiTokens(tokens), os.geteuid())
    app = BridgeApp(daemon, callers, head_rules(place, settings), settings, log)
    app.metrics.gauge(
        "inferd_bridge_running", "Requests with the daemon.", lambda: daemon.n_requests
    )
    app.metrics.gauge(
        "inferd_bridge_decoding",
        "Pictures and recordings that are being decoded.",
        lambda: decoders.n_running,
    )
    return app


def head_rules(place: Place, settings: BridgeSettings) -> HeadRules:
    """Return the rules for heads: at a Unix socket, no browser's page can connect."""
    origins = frozenset(settings.origins)
    if place.path is not None:
        return HeadRules(None, origins)
    own = f"[{place.host}]" if ":" in place.host else place.host
    names = (*LOCAL_NAMES, own, *(host.lower() for host in settings.hosts))
    return HeadRules(frozenset(names), origins)


def _name_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return Place(host=host, port=port).text


async def _run_until_signal(
    server: HttpServer, sock: socket.socket, log: BridgeLog
) -> None:
    stop = trio.Event()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.run)

            async def follow() -> None:
                n_signals = 0
                async for _ in signals:
                    n_signals += 1
                    if n_signals > 1:
                        nursery.cancel_scope.cancel()
                    log.write("info", "bridge.draining")
                    stop.set()

            nursery.start_soon(follow)
            await server.serve(sock, stop)
            nursery.cancel_scope.cancel()
