"""The composition root: build the bridge from its settings and run it until it ends."""

import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio

from inferd.bridge.access_log import BridgeLog, kind_of, stderr_log
from inferd.bridge.chats.content_filter import ContentFilter
from inferd.bridge.chats.parts import AnswerParts
from inferd.bridge.chats.tools.servers import ToolServers
from inferd.bridge.http.app import BridgeApp
from inferd.bridge.http.chats import ChatRoutes, ChatSetUp
from inferd.bridge.http.guard import LOCAL_NAMES, HeadRules
from inferd.bridge.http.listen import (
    BridgeListenError,
    Place,
    listening,
    parse_place,
    passed_sockets,
    place_of,
    tls_context,
)
from inferd.bridge.http.server import HttpServer
from inferd.bridge.identity.caller import Callers
from inferd.bridge.identity.quota import DailyQuota, DayUsage
from inferd.bridge.identity.tcp_owner import ConnectionOwners, TcpEnd
from inferd.bridge.identity.token_file import ApiTokens, default_path, read_tokens
from inferd.bridge.identity.usage_file import (
    UsageFileError,
    UsageKeeper,
    read_usage,
    usage_path,
)
from inferd.bridge.media.decoders import MediaDecoders
from inferd.bridge.metrics import BridgeMetrics
from inferd.bridge.upstream.daemon import DaemonClient
from inferd.bridge.upstream.helper import HelperClient
from inferd.chats.store import ChatStore
from inferd.config.bridge import BridgeSettings
from inferd.config.chats import ChatsSettings
from inferd.paths import state_directory
from inferd.service.garbage import GarbageCollector, infrequent_gc
from inferd.service.notify import ServiceNotifier


@dataclass(frozen=True, kw_only=True)
class BridgeOptions:
    """What the command line says, and the settings of the file."""

    settings: BridgeSettings
    listen: str | None = None
    """Instead of ``bridge.listen``."""
    directory: Path | None = None
    """Of the daemon's sockets; ``None`` for the default ones."""
    chats: ChatsSettings = field(default_factory=ChatsSettings)
    is_development: bool = False
    """Whether the bridge's own user may sign in by a name."""
    is_insecure: bool = False
    """Whether other addresses than loopback need no TLS."""


def run_bridge(options: BridgeOptions) -> None:
    """Serve until SIGTERM or SIGINT; the next one ends it at once.

    It listens at the sockets that systemd has passed, or as configured.

    Raises:
        BridgeListenError: it cannot listen as configured.
        TokenFileError: the tokens cannot be read.
    """
    settings = options.settings
    tokens = Path(settings.tokens) if settings.tokens else default_path()
    read_tokens(tokens)
    with ExitStack() as stack:
        log = stack.enter_context(stderr_log())
        socks = stack.enter_context(passed_sockets(os.environ))
        if socks and options.listen:
            raise BridgeListenError("--listen: systemd has passed sockets already")
        configured = parse_place(options.listen or settings.listen)
        places = [*map(place_of, socks)] or [configured]
        tls = tls_context(settings, places, is_insecure=options.is_insecure)
        if not socks:
            socks = [stack.enter_context(listening(configured))]
        decoders = stack.enter_context(closing(MediaDecoders(settings, log)))
        rules = head_rules(places, settings)
        bridge = _Bridge(options, tokens, rules, tls, decoders=decoders, log=log)
        for sock in socks:
            place = place_of(sock)
            scheme = "" if place.path else "https://" if tls else "http://"
            log.write("info", "bridge.listening", address=f"{scheme}{place.text}")
        try:
            bridge.run(socks)
        finally:
            log.write("info", "bridge.stopped")


def head_rules(places: Sequence[Place], settings: BridgeSettings) -> HeadRules:
    """Return the rules for heads of requests to these places."""
    own = [
        f"[{each.host}]" if ":" in each.host else each.host
        for each in places
        if each.path is None
    ]
    names = (*LOCAL_NAMES, *own, *(host.lower() for host in settings.hosts))
    return HeadRules(frozenset(names), frozenset(settings.origins))


CHAT_ANSWERS: Final = "/chats/{chat_id}/assistant_message"
"""The route by which metrics count the tokens of chats."""


def chat_set_up(
    options: BridgeOptions,
    daemon: DaemonClient,
    callers: Callers,
    log: BridgeLog,
    metrics: BridgeMetrics,
) -> ChatSetUp:
    """Return what the routes of chats are made of."""
    if not options.chats.enabled:
        return ChatSetUp()
    store = ChatStore(options.chats.database, state_directory())
    parts = AnswerParts(
        store,
        daemon,
        callers,
        options.chats,
        log,
        options.settings.default_max_tokens,
        count_tokens=partial(metrics.tokens_used, CHAT_ANSWERS),
        tools=ToolServers(options.chats.tool_servers),
        content_filter=ContentFilter(options.chats.filter),
    )
    return ChatSetUp(parts, is_development=options.is_development)


class _Bridge:
    """The parts of the process."""

    def __init__(  # noqa: PLR0913  # all that it consists of
        self,
        options: BridgeOptions,
        tokens: Path,
        rules: HeadRules,
        tls: ssl.SSLContext | None,
        *,
        decoders: MediaDecoders,
        log: BridgeLog,
    ) -> None:
        settings = options.settings
        self._log = log
        self._notifier = ServiceNotifier(os.environ)
        self._quota, self._usage = self._keep_usage(usage_path())
        daemon = self._daemon = DaemonClient(
            options.directory,
            max_requests=settings.max_requests,
            is_gateway=settings.gateway,
            decoders=decoders,
        )
        own_uid = os.geteuid() if settings.own_user else None
        self._owners = ConnectionOwners()
        callers = Callers(ApiTokens(tokens), own_uid, self._quota, self._owners)
        helper = HelperClient(options.directory)
        self._drain_s = settings.drain_s
        metrics = BridgeMetrics()
        self._chats = ChatRoutes(chat_set_up(options, daemon, callers, log, metrics))
        app = BridgeApp(
            daemon,
            callers,
            rules,
            settings,
            log,
            helper=helper,
            chats=self._chats,
            metrics=metrics,
        )
        self._server = HttpServer(app, settings, tls, self._tell_bug)
        for name, text, read in (
            ("running", "Requests with the daemon.", lambda: daemon.n_requests),
            ("connections", "HTTP connections.", lambda: self._server.n_connections),
            ("decoding", "Files that are being decoded.", lambda: decoders.n_running),
            ("chat_answers", "Answers of chats.", lambda: self._chats.n_running),
        ):
            metrics.gauge(f"inferd_bridge_{name}", text, read)

    def _check_owners(self, socks: Sequence[socket.socket]) -> None:
        """Log where the kernel does not say whose a connection is, and ask it no more."""
        for sock in socks:
            if sock.family == socket.AF_UNIX:
                continue
            listening = TcpEnd(*sock.getsockname()[:2])
            if not self._owners.check(listening):
                reason = "the kernel has no INET_DIAG: TCP connections need tokens"
                self._log.write("warn", "bridge.owners_unknown", reason=reason)
                return

    def _keep_usage(self, path: Path) -> tuple[DailyQuota, UsageKeeper]:
        try:
            usage = read_usage(path)
        except UsageFileError as error:
            self._tell_no_usage(str(error))
            usage = DayUsage()
        quota = DailyQuota(usage)
        return quota, UsageKeeper(quota, path, self._tell_no_usage)

    def _tell_no_usage(self, reason: str) -> None:
        """Log that a restart begins quotas anew."""
        self._log.write("warn", "bridge.usage_not_kept", reason=reason)

    def _tell_bug(self, error: Exception) -> None:
        """Log what has ended a connection."""
        self._log.write("error", "http_connection.failed", error=kind_of(error))

    def run(self, socks: Sequence[socket.socket]) -> None:
        """Serve until a signal."""
        with infrequent_gc():
            trio.run(self._run, socks)

    async def _run(self, socks: Sequence[socket.socket]) -> None:
        self._check_owners(socks)
        stop = trio.Event()
        collector = GarbageCollector()
        with (
            trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals,
            collector.collecting(),
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(collector.run)
                nursery.start_soon(self._follow, signals, stop, nursery.cancel_scope)
                nursery.start_soon(self._notifier.feed_watchdog)
                nursery.start_soon(self._usage.run)
                drained = trio.Event()
                nursery.start_soon(self._drain_chats, stop, drained)
                await nursery.start(self._chats.run)
                self._notifier.ready()
                await self._server.serve(socks, stop, self._daemon.close)
                await drained.wait()
                nursery.cancel_scope.cancel()
        self._daemon.close()
        self._usage.write(self._quota.usage())

    async def _drain_chats(self, stop: trio.Event, drained: trio.Event) -> None:
        """Let the answers of chats end, as those of connections."""
        await stop.wait()
        with trio.move_on_after(self._drain_s):
            await self._chats.idle()
        drained.set()

    async def _follow(
        self, signals: AsyncIterator[int], stop: trio.Event, scope: trio.CancelScope
    ) -> None:
        """Drain at the first signal; end at the next."""
        n_signals = 0
        async for _ in signals:
            n_signals += 1
            if n_signals > 1:
                scope.cancel()
            self._notifier.stopping()
            self._log.write("info", "bridge.draining")
            stop.set()
