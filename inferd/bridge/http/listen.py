"""Where the bridge listens: addresses, Unix sockets, and the certificate for TLS."""

import os
import socket
import ssl
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from inferd.config.bridge import BridgeSettings
from inferd.limits.bridge import HTTP_BACKLOG
from inferd.service.activation import (
    ActivationError,
    adopt,
    forget_passed,
    keep_from_children,
    passed_fds,
)
from inferd.service.bind import ListenError, bind_socket, check_socket_directory

FAMILIES: Final = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
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
    settings: BridgeSettings, places: Sequence[Place], *, is_insecure: bool
) -> ssl.SSLContext | None:
    """Return what TLS needs, or ``None`` without TLS.

    Args:
        settings: with the certificate.
        places: where the bridge listens; Unix sockets have no TLS.
        is_insecure: whether other addresses than loopback need none.

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
    for place in places:
        if not (place.is_loopback or is_insecure):
            raise BridgeListenError(
                f"{place.text} is not loopback: set bridge.certificate and bridge.key, or "
                "let anybody on the network read along with --insecure"
            )
    return None


@contextmanager
def listening(place: Place) -> Iterator[socket.socket]:
    """Listen at a place while inside; a Unix socket that was bound here is removed at the end.

    Raises:
        BridgeListenError: that is not possible, or others could replace a Unix socket there.
    """
    try:
        sock = _bind_path(place.path) if place.path else _bind_address(place)
    except ListenError as error:
        raise BridgeListenError(str(error)) from error
    except OSError as error:
        raise BridgeListenError(f"{place.text}: {error.strerror}") from error
    with sock:
        if place.path is None:
            yield sock
            return
        bound = _identity(place.path)
        try:
            yield sock
        finally:
            with suppress(OSError):  # it may be gone, or another bridge's by now
                if _identity(place.path) == bound:
                    place.path.unlink()


@contextmanager
def passed_sockets(environ: MutableMapping[str, str]) -> Iterator[list[socket.socket]]:
    """Give the listening sockets that systemd has passed, as many as they are.

    Raises:
        BridgeListenError: one cannot be used.
    """
    with ExitStack() as sockets:
        try:
            passed = passed_fds(environ, os.getpid())
            for _, fd in passed:
                keep_from_children(fd)
            adopted = [
                sockets.enter_context(adopt(name, fd, FAMILIES)) for name, fd in passed
            ]
        except ActivationError as error:
            raise BridgeListenError(str(error)) from error
        finally:
            forget_passed(environ)
        yield adopted


def place_of(sock: socket.socket) -> Place:
    """Return where a socket listens."""
    if sock.family == socket.AF_UNIX:
        return Place(path=Path(os.fsdecode(sock.getsockname())))
    host, port = sock.getsockname()[:2]
    return Place(host=host, port=port)


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino


def _bind_address(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((place.host, place.port))
        sock.listen(HTTP_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _bind_path(path: Path) -> socket.socket:
    check_socket_directory(path.parent.resolve())
    return bind_socket(path, mode=SOCKET_MODE)
