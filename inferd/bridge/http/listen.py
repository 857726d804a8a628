"""Where the bridge listens: addresses, Unix sockets, and the certificate for TLS."""

import os
import socket
import ssl
import stat
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from inferd.config.bridge import BridgeSettings

BACKLOG: Final = 128
SOCKET_MODE: Final = 0o660
MAX_PORT: Final = 65_535


class BridgeListenError(Exception):
    """The bridge cannot listen there; one line."""


@dataclass(frozen=True)
class Place:
    """An address and a port, or the path of a Unix socket."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this machine can connect."""
        return self.path is not None or ip_address(self.host).is_loopback

    @property
    def text(self) -> str:
        """For people."""
        if self.path is not None:
            return str(self.path)
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_place(text: str) -> Place:
    """Parse an address and a port, or a path, which contains a ``/``.

    Raises:
        BridgeListenError: it is neither.
    """
    if "/" in text:
        return Place(path=Path(text))
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    host = "127.0.0.1" if host == "localhost" else host
    try:
        ip_address(host)
    except ValueError:
        colon = ""
    if not (colon and port.isascii() and port.isdigit() and int(port) <= MAX_PORT):
        raise BridgeListenError(
            f"{text}: neither an address and a port, as 127.0.0.1:8313, nor a path with /"
        )
    return Place(host=host, port=int(port))


def tls_context(
    settings: BridgeSettings, place: Place, *, is_insecure: bool
) -> ssl.SSLContext | None:
    """Return what TLS needs, or ``None`` without TLS.

    Raises:
        BridgeListenError: the files cannot be used, or are missing for an address that is
            not loopback.
    """
    if settings.certificate and settings.key:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(settings.certificate, settings.key)
        except (OSError, ssl.SSLError) as error:
            raise BridgeListenError(
                f"bridge.certificate, bridge.key: {error.strerror or error}"
            ) from error
        return context
    if settings.certificate or settings.key:
        raise BridgeListenError("bridge.certificate and bridge.key go together")
    if not (place.is_loopback or is_insecure):
        raise BridgeListenError(
            f"{place.text} is not loopback: set bridge.certificate and bridge.key, or let "
            "anybody on the network read along with --insecure"
        )
    return None


def bind(place: Place) -> socket.socket:
    """Listen at a place.

    Raises:
        BridgeListenError: that is not possible.
    """
    try:
        return _bind_path(place.path) if place.path else _bind_address(place)
    except OSError as error:
        raise BridgeListenError(f"{place.text}: {error.strerror}") from error


def _bind_address(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((place.host, place.port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _bind_path(path: Path) -> socket.socket:
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~SOCKET_MODE)
    try:
        sock.bind(str(path))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock


def _remove_stale(path: Path) -> None:
    """Remove a socket of ours that nobody listens at; anything else stays."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
