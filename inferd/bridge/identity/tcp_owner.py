"""The kernel's word on whose process is at the other end of a loopback connection."""

import socket
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final, NamedTuple

from inferd.limits.bridge import MAX_TCP_TABLE_BYTES

_TABLES: Final = {
    socket.AF_INET: Path("/proc/net/tcp"),
    socket.AF_INET6: Path("/proc/net/tcp6"),
}
_ESTABLISHED: Final = "01"
_WORD: Final = struct.Struct("=I")
_NO_INODE: Final = "0"


class TcpEnd(NamedTuple):
    """An end of a TCP connection."""

    address: str
    port: int


def owner_of(family: int, client: TcpEnd, server: TcpEnd) -> int | None:
    """Return the uid of the process that has the client's end of a connection.

    Returns:
        ``None`` unless it is an established connection on this machine's loopback.
    """
    if not (is_loopback(client.address) and is_loopback(server.address)):
        return None
    try:
        with _TABLES[socket.AddressFamily(family)].open("rb") as file:
            table = file.read(MAX_TCP_TABLE_BYTES)
    except (OSError, KeyError, ValueError):
        return None
    return find_owner(table.decode("ascii", "replace").splitlines(), client, server)


def find_owner(lines: Iterable[str], client: TcpEnd, server: TcpEnd) -> int | None:
    """Search the kernel's table for the client's end; pure.

    An end whose process is gone is listed with uid 0 and without an inode: it counts as
    nobody's.
    """
    wanted = [_kernel_form(client), _kernel_form(server)]
    for line in lines:
        fields = line.split()
        if len(fields) > 9 and fields[1:3] == wanted:  # noqa: PLR2004  # the inode's place
            is_held = fields[3] == _ESTABLISHED and fields[9] != _NO_INODE
            return int(fields[7]) if is_held else None
    return None


def is_loopback(address: str) -> bool:
    """Tell whether an address is this machine's loopback, also in its IPv6 form."""
    try:
        return _plain(address).is_loopback
    except ValueError:
        return False


def _plain(address: str) -> IPv4Address | IPv6Address:
    parsed = ip_address(address)
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _kernel_form(end: TcpEnd) -> str:
    """Write an address as the table has it: words of 32 bits in the machine's own order."""
    packed = ip_address(end.address).packed
    words = [word for (word,) in _WORD.iter_unpack(packed)]
    return f"{''.join(f'{word:08X}' for word in words)}:{end.port:04X}"
