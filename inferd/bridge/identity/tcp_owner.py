"""The kernel's word on whose process is at the other end of a loopback connection.

It is asked for that very connection (``NETLINK_SOCK_DIAG``, sock_diag(7)): the cost does not
depend on how many connections there are. Kernels that were built without ``INET_DIAG`` answer
nothing, and connections need tokens there: they look for the module each time that they are
asked, so they are asked once.
"""

import socket
import struct
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from inferd.limits.bridge import KEPT_ADDRESSES, OWNER_ANSWER_BYTES

_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_ESTABLISHED: Final = 1
_KERNEL: Final = 0
"""Who sends an answer: the kernel has no process id."""
_ALL: Final = 0xFFFF_FFFF
"""States of connections, as bits; also half of "any cookie"."""
IPV4: Final = 4
_ADDRESS_BYTES: Final = 16
_HEAD: Final = struct.Struct("=IHHII")
"""Of a message: its length, type, flags, sequence number and port."""
_QUERY: Final = struct.Struct("=BBBxI")
"""Family, protocol, extensions, states."""
_PORTS: Final = struct.Struct("!HH")
_ANY_DEVICE: Final = struct.pack("=III", 0, _ALL, _ALL)
"""No device, and any cookie."""
_FOUND: Final = struct.Struct("=BB2x2s2s16s16s12x12xII")
"""Of the answer: family, state, ports, addresses, uid and inode."""


class TcpEnd(NamedTuple):
    """An end of a TCP connection."""

    address: str
    port: int


_NOWHERE: Final = {4: TcpEnd("0.0.0.0", 0), 6: TcpEnd("::", 0)}  # noqa: S104  # no listener
"""The other end of a socket that listens, by the version of its address."""


class ConnectionOwners:
    """Asks the kernel, until it is known not to answer."""

    def __init__(self) -> None:
        self.answers = True
        """Whether the kernel tells of connections, as far as is known."""

    def check(self, listening: TcpEnd) -> bool:
        """Ask for a socket of one's own that listens; return whether the kernel knows it.

        If it does not, it is asked no more: nobody can make that happen later, as by closing
        the connection that is asked for.
        """
        nowhere = _NOWHERE[_plain(listening.address).version]
        answer = _ask(listening, nowhere)
        has_head = len(answer) >= _HEAD.size
        self.answers = has_head and _HEAD.unpack_from(answer)[1] == _SOCK_DIAG_BY_FAMILY
        return self.answers

    def owner_of(self, client: TcpEnd, server: TcpEnd) -> int | None:
        """Return the uid of the process that has the client's end of a connection.

        It does not wait, and takes some 50 us: the kernel answers while it is asked.

        Returns:
            ``None`` unless it is an established connection on this machine's loopback.
        """
        if not (
            self.answers and is_loopback(client.address) and is_loopback(server.address)
        ):
            return None
        return find_owner(_ask(client, server), client, server)


def _ask(client: TcpEnd, server: TcpEnd) -> bytes:
    """Ask for the client's end of a connection; return the kernel's answer, empty without."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as sock:
            sock.settimeout(0)  # the answer is there once the question is sent
            sock.sendto(query_of(client, server), (0, 0))
            answer, (sender, _) = sock.recvfrom(OWNER_ANSWER_BYTES)
    except OSError:
        return b""
    return answer if sender == _KERNEL else b""


def query_of(client: TcpEnd, server: TcpEnd) -> bytes:
    """Write the question for the client's end of one connection; pure."""
    ends = [_plain(client.address), _plain(server.address)]
    family = socket.AF_INET if ends[0].version == IPV4 else socket.AF_INET6
    body = (
        _QUERY.pack(family, socket.IPPROTO_TCP, 0, _ALL)
        + _PORTS.pack(client.port, server.port)
        + b"".join(end.packed.ljust(_ADDRESS_BYTES, b"\0") for end in ends)
        + _ANY_DEVICE
    )
    length = _HEAD.size + len(body)
    return _HEAD.pack(length, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + body


def find_owner(answer: bytes, client: TcpEnd, server: TcpEnd) -> int | None:
    """Read the kernel's answer, one message; pure.

    An end whose process is gone is told with uid 0 and without an inode: it counts as
    nobody's. Where there is no such connection, the kernel may tell of a socket that listens
    at the client's port, or of an error.
    """
    if len(answer) < _HEAD.size + _FOUND.size:
        return None
    _, kind, *_ = _HEAD.unpack_from(answer)
    family, state, *ports, source, target, uid, inode = _FOUND.unpack_from(
        answer, _HEAD.size
    )
    if kind != _SOCK_DIAG_BY_FAMILY or state != _ESTABLISHED or not inode:
        return None
    n_bytes = 4 if family == socket.AF_INET else _ADDRESS_BYTES
    found = [_unmapped(ip_address(each[:n_bytes])) for each in (source, target)]
    is_it = found == [_plain(client.address), _plain(server.address)]
    wanted = _PORTS.pack(client.port, server.port)
    return int(uid) if is_it and b"".join(ports) == wanted else None


def is_loopback(address: str) -> bool:
    """Tell whether an address is this machine's loopback, also in its IPv6 form."""
    try:
        return _plain(address).is_loopback
    except ValueError:
        return False


@lru_cache(KEPT_ADDRESSES)
def _plain(address: str) -> IPv4Address | IPv6Address:
    return _unmapped(ip_address(address))


def _unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address of one in its IPv6 form, as ``[::]`` listeners see it."""
    return getattr(address, "ipv4_mapped", None) or address
