"""The main function of the programs that ask remote engines."""

import os
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple, TypeVar

import trio
from msgspec.structs import replace

from inferd.config.kinds.kind import BackendKind, InWorker
from inferd.config.kinds.remote import RemoteSettings
from inferd.config.kinds.remote_address import RemoteAddress, parse_address
from inferd.config.kinds.remote_limits import MAX_KEY_BYTES
from inferd.installation import command_to_add
from inferd.ipc.encoding import decode_settings
from inferd.ipc.worker import Loaded, LoadFailed, Loading, ReceivedLoad
from inferd.sandbox.network import has_network
from inferd.sandbox.pdeathsig import die_with_parent
from inferd.sandbox.privileges import refuse_inspection
from inferd.worker.backend import LoadError
from inferd.worker.channel import MessageQueue, ReceivedMessage, WorkerChannel
from inferd.worker.remote.api import RemoteApi
from inferd.worker.remote.channel import AsyncChannel
from inferd.worker.remote.generic_writer import MARKERS
from inferd.worker.runtime import EXIT_BUG, EXIT_LOAD_FAILED
from inferd.worker.sandbox import WorkerSandbox, drop_privileges

_KEY_ARGUMENT: Final = 3


S = TypeVar("S", bound=RemoteSettings)


class _Http(NamedTuple):
    """What asks remotes, of an extra that may be missing."""

    service: ModuleType
    exchange: ModuleType
    sockets: ModuleType
    trial: ModuleType


class _Connectable(NamedTuple):
    """What a worker needs to ask its remote."""

    key: str
    http: _Http
    port: int
    connect: Callable[[], object]
    """Makes its ``RemoteConnections``."""


def run_remote(kind: BackendKind[S], api_of: Callable[[S], RemoteApi[S]]) -> int:
    """Serve the daemon at the other end of the descriptor on the command line.

    Nobody can trace this process or read its memory: it has the key.

    Args:
        kind: whose program this is.
        api_of: gives the API of a remote by its settings.

    Returns:
        The exit code.
    """
    refuse_inspection()
    fd, parent_pid = map(int, sys.argv[1:_KEY_ARGUMENT])
    die_with_parent(parent_pid)
    drop_privileges()
    with socket.socket(fileno=fd) as sock:
        queue = MessageQueue()
        channel = WorkerChannel(sock, queue)
        match channel.receive():
            case ReceivedMessage(ReceivedLoad() as load):
                settings = decode_settings(load, kind.settings)
                api = api_of(settings)
            case _:
                return EXIT_BUG
        try:
            ready = _load(channel, load, api, kind, settings)
        except LoadError as error:
            channel.send(LoadFailed(reason=error.reason, detail=error.detail))
            return EXIT_LOAD_FAILED
        if ready is not None:
            sock.setblocking(False)  # noqa: FBT003  # socket's own signature
            service = ready.http.service.RemoteService
            asked = (AsyncChannel(sock, queue), settings, api, ready.connect)
            trio.run(service(*asked, heartbeat_s=load.heartbeat_s, key=ready.key).serve)
    return 0


def _load(
    channel: WorkerChannel,
    load: ReceivedLoad,
    api: RemoteApi[S],
    kind: BackendKind[S],
    settings: S,
) -> _Connectable | None:
    """Enter the sandbox and report; ``None`` if the report was all that was asked for.

    Raises:
        LoadError: the remote could not be asked, or, where it was to be tried, does not answer.
    """
    loaded = Loaded(
        capabilities=api.capabilities(settings),
        library=f"{api.name} at {parse_address(settings.base_url, settings.default_path)}",
        marker_tokens=MARKERS,
    )
    if load.is_outline:
        channel.send(loaded)
        return None
    ready = _connectable(kind, api, settings)
    channel.send(WorkerSandbox().enter_remote(ready.port))
    if load.asks_remote:
        told = ready.http.trial.ask(ready.connect, api, settings, ready.key)
        channel.send(replace(loaded, library=told))
        return None
    if load.lists_models:
        names = ready.http.trial.list_models(ready.connect, api, ready.key)
        channel.send(replace(loaded, remote_models=[*names]))
        return None
    if load.pulls_model:
        ready.http.trial.pull_model(
            *(ready.connect, api, ready.key, load.pulls_model),
            lambda text: channel.send(Loading(phase="checking_local", told=text)),
        )
        channel.send(loaded)
        return None
    channel.send(loaded)
    return ready


def _connectable(kind: BackendKind[S], api: RemoteApi[S], settings: S) -> _Connectable:
    """Read and import what the sandbox does not let read, and resolve the remote's name once.

    Raises:
        LoadError: the key, an extra, the network or the certificates are missing.
    """
    key = _read_key(kind, settings)
    http = _import_http(kind)
    remote, tls = _prepare(settings)
    if remote.scheme == "sockets":
        return _Connectable(
            key,
            http,
            remote.port,
            partial(http.sockets.SocketConnections, Path(str(remote.socket)), settings),
        )
    connect = partial(
        http.exchange.RemoteConnections,
        *(remote, settings),
        headers=api.headers(key),
        tls=tls,
        errors=api.errors,
    )
    return _Connectable(key, http, remote.port, connect)


def _read_key(kind: BackendKind[S], settings: S) -> str:
    """Read the key from its descriptor; an empty text if none is configured.

    Raises:
        LoadError: there is none, or it is none.
    """
    assert isinstance(kind.served_by, InWorker)  # noqa: S101  # this one
    credential = kind.served_by.credential(settings)
    if credential is None:
        return ""
    if len(sys.argv) <= _KEY_ARGUMENT:
        raise LoadError(
            "the key of the remote is missing",
            f"api_key_env = {credential.variable}: no such variable"
            if credential.variable
            else f"api_key_credential = {credential.file}: no such file in "
            "$CREDENTIALS_DIRECTORY",
        )
    fd = int(sys.argv[_KEY_ARGUMENT])
    content = os.pread(fd, MAX_KEY_BYTES + 1, 0)
    os.close(fd)
    key = content.decode("ascii", "replace").strip()
    if (
        not key
        or len(content) > MAX_KEY_BYTES
        or not key.isascii()
        or not key.isprintable()
    ):
        raise LoadError(
            "the key of the remote cannot be used",
            f"the key has {len(content)} bytes; allowed: 1 to {MAX_KEY_BYTES}, printable",
        )
    return key


def _import_http(kind: BackendKind[S]) -> _Http:
    """Import what asks remotes, while modules can be read.

    Raises:
        LoadError: the extra is not installed.
    """
    try:
        from inferd.worker.remote import service, trial  # noqa: PLC0415  # an extra
        from inferd.worker.remote.http import exchange  # noqa: PLC0415  # an extra
        from inferd.worker.remote.sockets import (  # noqa: PLC0415  # needs trio's
            exchange as sockets,
        )
    except ModuleNotFoundError as error:
        text = f"kind {kind.name} needs the package {error.name}"
        command = command_to_add("remote")
        raise LoadError(text, f"{text}: {command}") from error
    return _Http(service, exchange, sockets, trial)


def _prepare(settings: RemoteSettings) -> tuple[RemoteAddress, ssl.SSLContext | None]:
    """Read what the sandbox does not let read; resolve once, which loads libraries.

    Raises:
        LoadError: there is no network, or the certificates cannot be read.
    """
    from inferd.worker.remote.http.network import tls_context  # noqa: PLC0415  # an extra

    remote = parse_address(settings.base_url, settings.default_path)
    if remote.port and not has_network():
        reason = "the service has no network; its drop-in remote.conf gives it one"
        raise LoadError(reason, f"{reason}: docs/remotes.md")
    if remote.is_name:
        with suppress(OSError):  # a remote that cannot be reached stops no start
            socket.getaddrinfo(remote.host, remote.port, type=socket.SOCK_STREAM)
    if remote.scheme != "https":
        return remote, None
    try:
        return remote, tls_context(settings.ca_file)
    except OSError as error:
        reason = "the certificates for the remote cannot be read"
        raise LoadError(reason, f"ca_file {settings.ca_file}: {error}") from error
