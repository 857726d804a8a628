"""Who may answer: the kernel says whose process listens at a socket.

A client that was led to somebody else's socket would hand over its prompt. So each
connection is checked before the first byte is sent: by ``SO_PEERCRED``, which is about
the connection and not about a path. The socket and its directory are looked at before, so
that nobody else can lead a client to another service of somebody whom it trusts; what was
looked at is held open, and is what a client connects to.
"""

import os
import pwd
import re
import socket
import stat
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self

from inferd.client.exchange import ClientError
from inferd.paths import SYSTEM_DIRECTORY

TRUST_VARIABLE: Final = "INFERD_TRUST_UID"
"""The environment variable with uids to be trusted besides, separated by commas."""
SERVICE_USER: Final = "inferd"
"""Whom the units of ``systemd/`` run the daemon as."""
ROOT_UID: Final = 0

_UID: Final = re.compile("[0-9]{1,10}")
_UCRED: Final = struct.Struct("iII")
_DESCRIPTORS: Final = Path("/proc/self/fd")
_OVERFLOW_UID: Final = Path("/proc/sys/kernel/overflowuid")
_USUAL_OVERFLOW_UID: Final = 65534


class UntrustedServerError(ClientError):
    """Somebody answers whom the client does not trust; nothing was sent.

    Attributes:
        path: of the socket.
        uid: of the process that listens there, or of the owner of the directory.
    """

    def __init__(self, path: Path, uid: int, what: str, hint: str = "") -> None:
        self.path = path
        self.uid = uid
        hint = hint or f"To trust this uid, set {TRUST_VARIABLE}={uid}"
        super().__init__(f"{path}: {what}; nothing was sent. {hint}")


class Connected(Protocol):
    """A connected socket, of the standard library's or of trio's."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes:
        """Ask the kernel about it."""


@dataclass(frozen=True)
class Trust:
    """The uids whose processes may answer at one socket."""

    path: Path
    uids: frozenset[int]

    @classmethod
    def at(cls, path: Path, trusted_uids: Collection[int] = ()) -> Self:
        """Find out whom to trust at a socket.

        Root, this process's own user, the service's user below ``/run/inferd``, and who
        is named. The uid that stands for users of other namespaces has to be named,
        even by a process that has it itself.

        Args:
            path: of the socket.
            trusted_uids: named by the caller, besides those of ``$INFERD_TRUST_UID``.

        Raises:
            ClientError: that variable holds something else.
        """
        usual = {ROOT_UID, os.geteuid(), *_service_uids(path)} - {overflow_uid()}
        return cls(path, frozenset({*usual, *trusted_uids, *named_uids(os.environ)}))

    @contextmanager
    def held(self) -> Iterator[str]:
        """Look at the socket that the path leads to, and give a way to that one.

        The way leads there while inside, whatever the path names by then; without
        ``/proc`` it is the path.

        Raises:
            UntrustedServerError: others decide what the path leads to: the directory, or
                a symlink on its last step or the socket's, belongs to somebody else, or
                anybody may write to the directory.
            OSError: it cannot be looked at.
        """
        with ExitStack() as stack:
            directory = self._open(stack, self.path.parent)
            info = os.fstat(directory)
            self._check_owner(info.st_uid, f"the owner of {self.path.parent} is")
            if info.st_mode & stat.S_IWOTH:
                raise UntrustedServerError(
                    self.path,
                    info.st_uid,
                    f"anybody may write to {self.path.parent}",
                    "Its owner has to take that right away: chmod o-w",
                )
            way = _DESCRIPTORS / str(self._open(stack, self.path, directory))
            yield str(way if os.path.lexists(way) else self.path)

    def _open(self, stack: ExitStack, step: Path, directory: int | None = None) -> int:
        """Open what a step leads to, over no symlink of others.

        Args:
            stack: closes it.
            step: its last name is the step.
            directory: where it is, if that is open.
        """
        flags = os.O_PATH | os.O_CLOEXEC
        name = step if directory is None else step.name
        found = os.open(name, flags | os.O_NOFOLLOW, dir_fd=directory)
        stack.callback(os.close, found)
        info = os.fstat(found)
        if stat.S_ISLNK(info.st_mode):
            self._check_owner(info.st_uid, f"{step} is a symlink of")
            target = os.readlink("", dir_fd=found)  # of this link, whose owner is known
            start = step.parent if directory is None else Path()
            found = os.open(start / target, flags, dir_fd=directory)
            stack.callback(os.close, found)
        return found

    def check_server(self, sock: Connected) -> None:
        """Refuse a connection to a process of somebody else.

        Args:
            sock: connected; nothing was sent yet.

        Raises:
            UntrustedServerError: it is one. The socket stays open.
        """
        data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        _, uid, _ = _UCRED.unpack(data)
        self._check_owner(uid, "the process that listens is of")

    def _check_owner(self, uid: int, what: str) -> None:
        if uid in self.uids:
            return
        known = "neither this user's, nor root's, nor the service's"
        if uid == overflow_uid():
            known = "that of every user who is not mapped into this user namespace"
        raise UntrustedServerError(self.path, uid, f"{what} uid {uid}, {known}")


def named_uids(environ: Mapping[str, str]) -> frozenset[int]:
    """Read the uids of ``$INFERD_TRUST_UID``.

    Raises:
        ClientError: it holds something else.
    """
    words = environ.get(TRUST_VARIABLE, "")
    uids = [word.strip() for word in words.split(",") if word.strip()]
    if not all(map(_UID.fullmatch, uids)):
        raise ClientError(f"{TRUST_VARIABLE} is no list of uids: {words!r}")
    return frozenset(map(int, uids))


def overflow_uid() -> int:
    """Give the uid that the kernel shows for users of other user namespaces."""
    try:
        return int(_OVERFLOW_UID.read_text())
    except (OSError, ValueError):  # no /proc
        return _USUAL_OVERFLOW_UID


def _service_uids(path: Path) -> frozenset[int]:
    """Give the service's uid, for a socket where only root or the service puts one."""
    if not _is_below(path.parent, SYSTEM_DIRECTORY):
        return frozenset()
    try:
        uid = pwd.getpwnam(SERVICE_USER).pw_uid
        info = SYSTEM_DIRECTORY.stat()
    except (KeyError, OSError):
        return frozenset()
    is_safe = info.st_uid in (ROOT_UID, uid) and not info.st_mode & stat.S_IWOTH
    return frozenset({uid} if is_safe else ())


def _is_below(directory: Path, other: Path) -> bool:
    return Path(os.path.realpath(directory)).is_relative_to(other)
