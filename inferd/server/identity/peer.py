"""The process at the other end of a Unix socket.

In a user namespace, such as a rootless container, the kernel reports all users who are not
mapped into it with one uid, the overflow uid. Two peers with it may be different users, so
each of their connections is an owner of its own.
"""

import itertools
import socket
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import trio

from inferd import peer_credentials
from inferd.backend.job import NO_UID
from inferd.peer_credentials import credentials_of
from inferd.server.identity.mapping import Identities, Identity

_SO_PEERGROUPS: Final = 59  # of asm-generic/socket.h; Python has no name for it
_GID: Final = struct.Struct("I")
_GROUPS_BYTES: Final = 1024
"""Room for 256 groups, as many as Python asks the kernel for at once."""

_UID_MAP: Final = Path("/proc/self/uid_map")
_N_UIDS: Final = 2**32 - 1
_overflow_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Peer:
    """A process, with its credentials from when it connected."""

    pid: int
    uid: int
    gid: int
    overflow_id: int = 0
    """Unique to the connection where the uid is the overflow uid; else 0."""

    identity: Identity | None = None
    """The user and owner that it counts as; ``None`` if both are its own uid."""

    @property
    def user(self) -> int:
        """The user for quotas; all peers with the overflow uid are one."""
        return self.identity.user if self.identity else self.uid

    @property
    def owner(self) -> int:
        """The owner of its requests and their data.

        Numbers below ``NO_UID`` are owners that count as one user.
        """
        if self.overflow_id:
            return NO_UID - self.overflow_id
        return self.identity.owner if self.identity else self.uid

    def __str__(self) -> str:
        return f"unix:{self.uid}:{self.pid}"


def peer_of(stream: trio.SocketStream | socket.socket, identities: Identities) -> Peer:
    """Ask the kernel for the peer's credentials.

    A peer with the overflow uid gets a new ``overflow_id`` on each call.

    Args:
        stream: its connection.
        identities: maps its credentials to a user.
    """
    sock = stream if isinstance(stream, socket.socket) else stream.socket
    pid, uid, gid = credentials_of(sock)
    if uid == overflow_uid():
        return Peer(pid, uid, gid, next(_overflow_ids))
    identity = identities.of(uid, gid)
    is_plain = identity == Identity(uid, uid)
    return Peer(pid, uid, gid, identity=None if is_plain else identity)


@cache
def overflow_uid() -> int | None:
    """Return the uid of users not mapped into our namespace; ``None`` if all are."""
    if _maps_everybody(_read(_UID_MAP)):
        return None
    return peer_credentials.overflow_uid()


def _maps_everybody(uid_map: str) -> bool:
    return sum(int(line.split()[2]) for line in uid_map.splitlines()) >= _N_UIDS


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # no /proc: which users are mapped is unknown
        return ""


def groups_of(stream: trio.SocketStream | socket.socket) -> frozenset[int]:
    """Ask the kernel for the peer's supplementary groups.

    A process with more than 256 counts as having none: only its main group is checked.
    """
    sock = stream if isinstance(stream, socket.socket) else stream.socket
    try:
        data = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:  # ERANGE, or a kernel older than 4.13
        return frozenset()
    return frozenset(gid for [gid] in _GID.iter_unpack(data))
