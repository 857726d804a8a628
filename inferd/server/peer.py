"""Who is at the other end of a Unix socket.

In a user namespace, as in a container without root, the kernel gives all users who are
not mapped into it the same uid. Two peers of that uid may be anybody: each is a stranger.
"""

import itertools
import socket
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import trio

from inferd.job import NOBODY
from inferd.server.identity import Identities, Identity

_UCRED = struct.Struct("iII")
_SO_PEERGROUPS: Final = 59  # of asm-generic/socket.h; Python has no name for it
_GID: Final = struct.Struct("I")
_GROUPS_BYTES: Final = 1024
"""As many as Python asks the kernel for at once: 256 groups."""

_UID_MAP: Final = Path("/proc/self/uid_map")
_OVERFLOW_UID: Final = Path("/proc/sys/kernel/overflowuid")
_USUAL_OVERFLOW_UID: Final = 65534
_N_UIDS: Final = 2**32 - 1
_strangers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Peer:
    """A process, as the kernel saw it when it connected."""

    pid: int
    uid: int
    gid: int
    stranger: int = 0
    """A number of this connection's own where the uid may be any user's; else 0."""

    identity: Identity | None = None
    """As whom it counts, where that is another than its uid."""

    @property
    def user(self) -> int:
        """As whom it is counted, wherever users have shares; all strangers are one."""
        return self.identity.user if self.identity else self.uid

    @property
    def owner(self) -> int:
        """Whose its requests are, and what is kept of them.

        Below ``NOBODY`` are those who are counted together and kept apart.
        """
        if self.stranger:
            return NOBODY - self.stranger
        return self.identity.owner if self.identity else self.uid

    def __str__(self) -> str:
        return f"unix:{self.uid}:{self.pid}"


def peer_of(stream: trio.SocketStream | socket.socket, identities: Identities) -> Peer:
    """Ask the kernel for the peer's credentials.

    A stranger is another one each time.

    Args:
        stream: its connection.
        identities: tell as whom it counts.
    """
    sock = stream if isinstance(stream, socket.socket) else stream.socket
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, gid = _UCRED.unpack(data)
    if uid == shared_uid():
        return Peer(pid, uid, gid, next(_strangers))
    identity = identities.of(uid, gid)
    is_its_own = identity == Identity(uid, uid)
    return Peer(pid, uid, gid, identity=None if is_its_own else identity)


@cache
def shared_uid() -> int | None:
    """Give the uid that all have who are not mapped into our namespace, if any are not."""
    if _maps_everybody(_read(_UID_MAP)):
        return None
    uid = _read(_OVERFLOW_UID).strip()
    return int(uid) if uid else _USUAL_OVERFLOW_UID


def _maps_everybody(uid_map: str) -> bool:
    return sum(int(line.split()[2]) for line in uid_map.splitlines()) >= _N_UIDS


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # no /proc: whether anybody is mapped is not known
        return ""


def groups_of(stream: trio.SocketStream | socket.socket) -> frozenset[int]:
    """Ask the kernel for the peer's supplementary groups.

    None are told of a process that has more than 256: it is in its main group alone then.
    """
    sock = stream if isinstance(stream, socket.socket) else stream.socket
    try:
        data = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:  # ERANGE, or a kernel older than 4.13
        return frozenset()
    return frozenset(gid for [gid] in _GID.iter_unpack(data))
