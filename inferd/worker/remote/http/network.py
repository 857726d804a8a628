"""Connections to the configured host and port alone.

A name is resolved for each connection, its addresses are checked, and those are connected to,
so that no other answer of a name server can come between.
"""

import re
import ssl
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httpcore2
import trio

from inferd.config.kinds.remote_address import RemoteAddress, is_allowed
from inferd.config.kinds.remote_limits import MAX_ADDRESSES, MAX_CERTIFICATES
from inferd.worker.remote.sockets.peer import check_listener

_HASHED: Final = re.compile(r"[0-9a-f]{8}\.[0-9]+").fullmatch
"""The names by which OpenSSL looks for certificates in a directory."""
SocketOptions = Iterable[Any]  # type: ignore[explicit-any]  # httpcore2's own type


class RefusedAddressError(httpcore2.ConnectError):
    """A name leads to addresses that are not to be connected to."""


class ConfiguredNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to one remote.

    Args:
        remote: where it is.
        trusted_uids: who may listen at a Unix socket, besides root and this user.
    """

    def __init__(
        self, remote: RemoteAddress, trusted_uids: Collection[int] = ()
    ) -> None:
        self._remote = remote
        self._trusted_uids = trusted_uids
        self._trio = httpcore2.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore2's interface
        local_address: str | None = None,
        socket_options: SocketOptions | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address that answers, of those that are allowed.

        Raises:
            RefusedAddressError: none is allowed.
            httpcore2.ConnectError, httpcore2.ConnectTimeout: none answers.
        """
        if (host, port) != (self._remote.host, self._remote.port):
            raise RefusedAddressError("another host or port than is configured")
        with trio.move_on_after(timeout if timeout is not None else float("inf")):
            return await self._connect(host, port, local_address, socket_options)
        raise httpcore2.ConnectTimeout

    async def _connect(
        self,
        host: str,
        port: int,
        local_address: str | None,
        socket_options: SocketOptions | None,
    ) -> httpcore2.AsyncNetworkStream:
        failure: Exception = httpcore2.ConnectError("it has no address")
        for address in await self._resolve(host, port):
            try:
                return await self._trio.connect_tcp(
                    address,
                    port,
                    local_address=local_address,
                    socket_options=socket_options,
                )
            except httpcore2.ConnectError as error:
                failure = error
        raise failure

    async def _resolve(self, host: str, port: int) -> list[str]:
        """Find the addresses of the host that are allowed."""
        try:
            found = await trio.socket.getaddrinfo(
                host, port, type=trio.socket.SOCK_STREAM
            )
        except OSError as error:
            raise httpcore2.ConnectError("its name has no address") from error
        addresses = [str(address[0]) for *_, address in found[:MAX_ADDRESSES]]
        allowed = [each for each in addresses if is_allowed(each, host)]
        if not allowed:
            raise RefusedAddressError(
                "its name leads to this machine or to a service of its network, which is "
                "not what is configured"
            )
        return allowed

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore2's interface
        socket_options: SocketOptions | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the configured socket, if who listens is trusted.

        Raises:
            RefusedAddressError: it is another socket.
            UntrustedListenerError: another user listens.
        """
        if path != self._remote.socket:
            raise RefusedAddressError("another socket than is configured")
        stream = await self._trio.connect_unix_socket(path, timeout, socket_options)
        try:
            check_listener(stream.get_extra_info("socket"), self._trusted_uids)
        except BaseException:
            await stream.aclose()
            raise
        return stream

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await trio.sleep(seconds)


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Make the context that verifies the remote; reads the certificates.

    Raises:
        OSError: they cannot be read.
    """
    context = ssl.create_default_context(cafile=ca_file)
    if ca_file is None:
        _load_directory(context)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load_directory(context: ssl.SSLContext) -> None:
    """Load the system's certificates that have files of their own.

    OpenSSL would look for them during a handshake, when the sandbox lets no file be read.
    """
    directory = ssl.get_default_verify_paths().capath
    if not directory:
        return
    with suppress(OSError):
        hashed = [each for each in Path(directory).iterdir() if _HASHED(each.name)]
        for path in sorted(hashed)[:MAX_CERTIFICATES]:
            with suppress(OSError):  # as OpenSSL skips what is none
                context.load_verify_locations(path)
