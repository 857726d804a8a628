"""The fleet file: which bridges there are, and where the files of the entry go."""

import socket
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Meta, Struct

from inferd.fleet.bounds import MAX_FLEET_FILE_BYTES, MAX_MEMBERS
from inferd.service.private_file import PrivateFileError, read_private

MAX_TOKEN_BYTES: Final = 1024
"""Bytes of a file with a token, which has 85."""
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
Resolve = Callable[[str, int], Sequence[str]]
"""Gives the addresses of a host and a port."""


class FleetError(Exception):
    """The fleet cannot be read; one line."""


class MemberEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table ``[[member]]``."""

    name: Name
    url: str
    """Of its bridge."""


class FleetSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of the fleet file. Paths are taken from its directory."""

    member: tuple[MemberEntry, ...] = ()
    dns: str = ""
    """A URL whose host is looked up: each of its addresses is a member of that name."""
    token_file: str = ""
    """With a token of every bridge, of the scope ``discovery``."""
    ca_file: str = ""
    """Of the authorities that vouch for members, besides those that the system knows."""
    listen: str = "127.0.0.1:8400"
    """Where the entry listens."""
    metrics_listen: str = "127.0.0.1:8401"
    """Where smg tells its metrics."""
    tls_certificate: str = ""
    """Of the entry, with the key in ``tls_key``."""
    tls_key: str = ""
    smg_file: str = "members.json"
    """The list that smg reads; it has the token."""
    haproxy_file: str = ""
    """The configuration of haproxy; empty: none is written."""


@dataclass(frozen=True)
class FleetMember:
    """One bridge."""

    name: str
    url: str

    @property
    def parts(self) -> SplitResult:
        """Its address, in parts."""
        return urlsplit(self.url)


@dataclass(frozen=True)
class Fleet:
    """What a fleet file says."""

    path: Path
    settings: FleetSettings
    members: tuple[FleetMember, ...]
    token: str

    def place(self, name: str) -> Path:
        """Return the path that a key of the file means."""
        return self.path.parent / name


def read_fleet(path: Path, resolve: Resolve | None = None) -> Fleet:
    """Read a fleet file, the token it names, and the addresses of ``dns``.

    Args:
        path: of the file.
        resolve: looks up addresses; by default the system does.

    Raises:
        FleetError: one of them cannot be used.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FLEET_FILE_BYTES + 1)
    except OSError as error:
        raise FleetError(f"{path}: {error.strerror}") from error
    if len(data) > MAX_FLEET_FILE_BYTES:
        raise FleetError(f"{path}: over {MAX_FLEET_FILE_BYTES} bytes")
    try:
        settings = parse_settings(data.decode())
        members = _members(settings, resolve or _addresses)
    except (ValueError, FleetError) as error:
        raise FleetError(f"{path}: {error}") from error
    return Fleet(path, settings, members, _token(path, settings))


def parse_settings(text: str) -> FleetSettings:
    """Parse the text of a fleet file.

    Raises:
        ValueError: it is no TOML, or a key or a value is not allowed.
    """
    settings = msgspec.convert(tomllib.loads(text), FleetSettings)
    if bool(settings.member) == bool(settings.dns):
        raise ValueError("either [[member]] tables or dns is needed, and not both")
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise ValueError("tls_certificate and tls_key go together")
    return settings


def _members(settings: FleetSettings, resolve: Resolve) -> tuple[FleetMember, ...]:
    """List the members, in the order of the file or of their addresses.

    Raises:
        FleetError: one has no usable URL, two have the same, or there are too many.
    """
    found = [_member(entry.name, entry.url) for entry in settings.member]
    if settings.dns:
        parts = _member("dns", settings.dns).parts
        assert parts.hostname and parts.port  # noqa: S101, PT018  # checked by _member
        found = [
            FleetMember(
                address, parts._replace(netloc=_netloc(address, parts.port)).geturl()
            )
            for address in resolve(parts.hostname, parts.port)
        ]
    if len(found) > MAX_MEMBERS:
        raise FleetError(f"{len(found)} members, at most {MAX_MEMBERS} are allowed")
    for what, values in (
        ("name", [each.name for each in found]),
        ("url", [each.url for each in found]),
    ):
        if twice := {each for each in values if values.count(each) > 1}:
            raise FleetError(f"two members have the {what} {min(twice)}")
    return tuple(found)


def _member(name: str, url: str) -> FleetMember:
    """Check a URL, and give it a port."""
    fault = FleetError(
        f"member {name}: {url!r} is no address of a bridge, as http://10.0.0.1:8313"
    )
    try:
        parts = urlsplit(url.rstrip("/"))
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        raise fault from None
    is_plain = url.isprintable() and " " not in url and "@" not in parts.netloc
    is_address = parts.scheme in ("http", "https") and parts[2:] == ("", "", "")
    if not (port and parts.hostname and is_plain and is_address):
        raise fault
    return FleetMember(
        name, parts._replace(netloc=_netloc(parts.hostname, port)).geturl()
    )


def _netloc(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _addresses(host: str, port: int) -> Sequence[str]:
    """Ask the system for the addresses of a host.

    Raises:
        FleetError: it knows none.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise FleetError(f"dns: {host}: {error.strerror}") from error
    return sorted({str(address[0]) for *_, address in found})


def _token(path: Path, settings: FleetSettings) -> str:
    if not settings.token_file:
        return ""
    place = path.parent / settings.token_file
    try:
        data = read_private(place, MAX_TOKEN_BYTES)
    except PrivateFileError as error:
        raise FleetError(str(error)) from error
    token = (data or b"").decode("latin-1").strip()
    if not (token.isascii() and token.replace("-", "").isalnum()):
        raise FleetError(f"{place}: no token is in it; inferd bridge token add")
    return token
