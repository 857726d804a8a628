"""Addresses of remote engines: which are allowed, by their texts and by their numbers."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from inferd.config.kinds.remote_limits import MAX_SOCKET_PATH_BYTES

_PORTS: Final = {"http": 80, "https": 443}
_LOCALHOST: Final = "localhost"
_NAT64: Final = ip_network("64:ff9b::/96")
_METADATA: Final = frozenset(
    map(ip_address, ("169.254.169.254", "100.100.100.200", "fd00:ec2::254"))
)
"""Where clouds tell a machine its secrets."""

SOCKET_PREFIX: Final = "unix:"
SOCKETS_PREFIX: Final = "sockets:"
Address = IPv4Address | IPv6Address


class RemoteAddress(NamedTuple):
    """Where a remote engine is."""

    scheme: Literal["http", "https", "unix", "sockets"]
    host: str
    """A name or an address; ``localhost`` for a Unix socket."""
    port: int
    """0 for a Unix socket."""
    path: str
    """The beginning of all paths, with ``/v1`` or what stands for it, and no ``/`` at the end."""
    socket: str | None = None
    """The path of a Unix socket; of the directory for the sockets of a daemon."""

    @property
    def shown_host(self) -> str:
        """The host as it stands in an address: one of IPv6 in brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def is_name(self) -> bool:
        """Whether the host is a name that has to be resolved."""
        return self.socket is None and _as_address(self.host) is None

    def __str__(self) -> str:
        """Return the address without a path, for people."""
        if self.socket is not None:
            return f"{self.scheme}:{self.socket}"
        return f"{self.scheme}://{self.shown_host}:{self.port}"


def parse_address(base_url: str, default_path: str = "/v1") -> RemoteAddress:
    """Parse the ``base_url`` of a remote engine.

    Args:
        base_url: as configured.
        default_path: of an address that has none, which is always so with a Unix socket.

    Raises:
        ValueError: it is none, or one over which prompts could be read on the way; the text
            says what is allowed, and does not quote the value, which may have a password.
    """
    if base_url.startswith(SOCKET_PREFIX):
        path = base_url.removeprefix(SOCKET_PREFIX).removeprefix("//")
        return _parse_socket(path, default_path)
    if base_url.startswith(SOCKETS_PREFIX):
        path = base_url.removeprefix(SOCKETS_PREFIX).removeprefix("//")
        return _parse_socket(path, "")._replace(scheme="sockets")
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError:
        raise ValueError("it is no address") from None
    host = parts.hostname or ""
    if parts.scheme not in _PORTS or not host or port == 0:
        raise ValueError("expected https://HOST, http://127.0.0.1:PORT or unix:/PATH")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("it has no user, no password, no query and no fragment")
    if not all("!" <= char <= "~" and char != "\\" for char in base_url):
        raise ValueError("it is ASCII, without blanks, control characters, backslashes")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    if scheme == "http" and not _is_loopback(host):
        raise ValueError("plain http is for this machine alone; elsewhere https")
    path = parts.path.rstrip("/")
    return RemoteAddress(scheme, host, port or _PORTS[scheme], path or default_path)


def _parse_socket(path: str, default_path: str) -> RemoteAddress:
    if not path.startswith("/") or "\x00" in path:
        raise ValueError("expected unix:/ABSOLUTE/PATH of a socket")
    if len(path.encode("utf-8", "surrogateescape")) > MAX_SOCKET_PATH_BYTES:
        raise ValueError(f"a socket's path has at most {MAX_SOCKET_PATH_BYTES} bytes")
    return RemoteAddress("unix", _LOCALHOST, 0, default_path, path)


def is_allowed(address: str, host: str) -> bool:
    """Tell whether an address that a name was resolved to may be connected to.

    Args:
        address: in numbers.
        host: as configured. If it is an address, that one alone is allowed; ``localhost`` is
            this machine, and any other name is another one, and no service of a cloud for its
            own machine.
    """
    found = _as_address(address)
    if found is None:
        return False
    if (configured := _as_address(host)) is not None:
        return found == configured
    embedded = _embedded(found)
    if host == _LOCALHOST:
        return embedded.is_loopback
    return not (
        embedded.is_loopback
        or embedded.is_link_local
        or embedded.is_unspecified
        or embedded.is_multicast
        or embedded in _METADATA
    )


def _is_loopback(host: str) -> bool:
    address = _as_address(host)
    return host == _LOCALHOST or (address is not None and address.is_loopback)


def _as_address(text: str) -> Address | None:
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _embedded(address: Address) -> Address:
    """Return the IPv4 address that one of IPv6 leads to, if it does."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.sixtofour or address
