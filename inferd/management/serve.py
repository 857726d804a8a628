"""Run the helper: its socket, its end by a signal or once it is idle."""

import os
import signal
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from inferd.bridge.access_log import BridgeLog, stderr_log
from inferd.config.bridge_helper import HelperSettings
from inferd.limits.bridge import HELPER_IDLE_S, MAX_HELPER_CONNECTIONS
from inferd.management.policy import HelperPolicy
from inferd.management.service import HelperPlaces, HelperService
from inferd.paths import models_directory, runtime_directory
from inferd.server.identity.access import uids_of
from inferd.server.listen.listeners import inherited_sockets
from inferd.service.bind import bind, make_socket_directory
from inferd.surfaces import Surface
from inferd.wire.management import HELPER_SOCKET

COMPONENT: Final = "bridge-helper"
HELPER: Final = Surface(
    name="helper", socket=HELPER_SOCKET, title="the bridge's helper", is_inference=False
)
"""As systemd passes its socket; it is none of the daemon's."""
OWN_MODE: Final = 0o600
SHARED_MODE: Final = 0o666
"""Of a socket that other users connect to: whom it answers, the kernel says."""
_ACCEPT_RETRY_S: Final = 0.1


@dataclass(frozen=True, kw_only=True)
class HelperOptions:
    """What the command line says, and the settings of the file."""

    settings: HelperSettings
    users: tuple[str, ...] = ()
    """Names of users who may ask it, besides those of the settings."""
    directory: Path | None = None
    """Of the daemon's sockets, and of its own; ``None`` for the default one."""
    ca_file: str | None = None
    """Of the certificate authorities that pulls trust; ``None`` for those of the system."""


def run_helper(options: HelperOptions) -> None:
    """Answer the bridge until SIGTERM or SIGINT, or, where systemd listens, until idle.

    Raises:
        ListenError: the socket cannot be had.
        ConfigError: a user is unknown.
    """
    with stderr_log(COMPONENT) as log:
        trio.run(_run, options, log)
        log.write("info", "helper.stopped")


async def _run(options: HelperOptions, log: BridgeLog) -> None:
    directory = options.directory or runtime_directory()
    named = uids_of("bridge_helper.uids", options.settings.uids)
    named |= uids_of("--user", options.users)
    policy = HelperPolicy(options.settings, named | {os.geteuid()})
    with ExitStack() as stack:
        passed = stack.enter_context(inherited_sockets(os.environ, (HELPER,)))
        places = HelperPlaces(
            store=models_directory(),
            directory=directory,
            environ={**os.environ},
            ca_file=options.ca_file,
        )
        service = HelperService(policy, places, log)
        if sock := passed.get(HELPER_SOCKET):
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock.dup()))
        else:
            listener = _bound(directory, stack, is_shared=bool(named))
        log.write("info", "helper.listening", allow=",".join(options.settings.allow))
        await _serve(service, listener, ends_idle=bool(passed))


def _bound(
    directory: Path, stack: ExitStack, *, is_shared: bool
) -> trio.SocketListener:
    """Bind the socket; it is removed at the end."""
    make_socket_directory(directory, group=None)
    path = directory / HELPER_SOCKET
    listener = bind(path, mode=SHARED_MODE if is_shared else OWN_MODE)
    stack.callback(path.unlink, missing_ok=True)
    return listener


async def _serve(
    service: HelperService, listener: trio.SocketListener, *, ends_idle: bool
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept_all, service, listener)
            if ends_idle:
                nursery.start_soon(await_idle, service, nursery.cancel_scope)
            async for _ in signals:
                nursery.cancel_scope.cancel()


async def accept_all(service: HelperService, listener: trio.SocketListener) -> None:
    """Accept connections up to their bound, and answer each."""
    room = trio.CapacityLimiter(MAX_HELPER_CONNECTIONS)
    async with listener, trio.open_nursery() as nursery:
        while True:
            await room.acquire_on_behalf_of(token := object())
            try:
                stream = await listener.accept()
            except OSError:
                room.release_on_behalf_of(token)
                await trio.sleep(_ACCEPT_RETRY_S)
                continue
            nursery.start_soon(_answer, service, stream, room, token)


async def _answer(
    service: HelperService,
    stream: trio.SocketStream,
    room: trio.CapacityLimiter,
    token: object,
) -> None:
    try:
        await service.handle(stream)
    finally:
        room.release_on_behalf_of(token)


async def await_idle(service: HelperService, scope: trio.CancelScope) -> None:
    """End the helper when no connection was open for ``HELPER_IDLE_S``."""
    while True:
        await trio.sleep_until(service.last_active_at + HELPER_IDLE_S)
        is_idle = trio.current_time() >= service.last_active_at + HELPER_IDLE_S
        if is_idle and not service.n_connections:
            scope.cancel()
            return
        if service.n_connections:
            await trio.sleep(HELPER_IDLE_S)
