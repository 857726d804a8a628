"""Check which user's process listens on a socket before anything is sent to it.

A client that connects to another user's socket would disclose its prompt. So every
connection is checked before the first byte is sent: by ``SO_PEERCRED``, which is bound to
the connection and not to a path. The socket and its directory are checked before
connecting, so that no other user can redirect a client to another service of a trusted
user; the checked socket is held open by ``O_PATH``, and the client connects to that one.
"""

import os
import pwd
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from inferd.client.core.failures import (
    TRUST_VARIABLE,
    ClientError,
    UntrustedServerError,
)
from inferd.paths import SYSTEM_DIRECTORY
from inferd.peer_credentials import ConnectedSocket, credentials_of, overflow_uid

__all__ = [
    "ROOT_UID",
    "SERVICE_USER",
    "TRUST_VARIABLE",
    "PeerCheck",
    "UntrustedServerError",
    "trusted_uids_from",
    "uid_of",
]

SERVICE_USER: Final = "inferd"
"""The user that runs the daemon in the units of ``systemd/``."""
ROOT_UID: Final = 0

_UID: Final = re.compile("[0-9]{1,10}")
_DESCRIPTORS: Final = Path("/proc/self/fd")


@dataclass(frozen=True)
class PeerCheck:
    """The uids that are trusted to serve one socket."""

    path: Path
    uids: frozenset[int]

    @classmethod
    def for_socket(cls, path: Path, trusted_uids: Collection[int] = ()) -> Self:
        """Determine the trusted uids of a socket.

        They are root, this process's own user, the service's user below ``/run/inferd``,
        and the given ones. The overflow uid, which stands for users of other user
        namespaces, must be given explicitly, even by a process that runs as it.

        Args:
            path: of the socket.
            trusted_uids: additional ones, besides those of ``$INFERD_TRUST_UID``.

        Raises:
            ClientError: that variable is not a list of uids.
        """
        usual = {ROOT_UID, os.geteuid(), *_service_uids(path)} - {overflow_uid()}
        return cls(
            path, frozenset({*usual, *trusted_uids, *trusted_uids_from(os.environ)})
        )

    @contextmanager
    def checked_path(self) -> Iterator[str]:
        """Open and check the socket; yield a path that refers to exactly that socket.

        The path is ``/proc/self/fd/N``, valid inside the ``with`` block, whatever the
        original path means by then; without ``/proc`` it is the original path.

        Raises:
            UntrustedServerError: another user controls what the path refers to: the
                directory, or a symlink that is its last component or the socket's,
                belongs to another user, or the directory is world-writable.
            OSError: the path cannot be opened.
        """
        with ExitStack() as stack:
            directory = self._open(stack, self.path.parent)
            info = os.fstat(directory)
            self._check_owner(info.st_uid, f"the owner of {self.path.parent} is")
            if info.st_mode & stat.S_IWOTH:
                raise UntrustedServerError(
                    self.path,
                    info.st_uid,
                    f"{self.path.parent} is world-writable",
                    "Its owner has to change that: chmod o-w",
                )
            checked = _DESCRIPTORS / str(self._open(stack, self.path, directory))
            yield str(checked if os.path.lexists(checked) else self.path)

    def _open(self, stack: ExitStack, step: Path, directory: int | None = None) -> int:
        """Open a path component, without following a symlink of another user.

        Args:
            stack: closes the descriptor.
            step: path whose last component is opened.
            directory: descriptor of its parent, if that is open.
        """
        flags = os.O_PATH | os.O_CLOEXEC
        name = step if directory is None else step.name
        found = os.open(name, flags | os.O_NOFOLLOW, dir_fd=directory)
        stack.callback(os.close, found)
        info = os.fstat(found)
        if stat.S_ISLNK(info.st_mode):
            self._check_owner(info.st_uid, f"{step} is a symlink of")
            target = os.readlink("", dir_fd=found)  # of the link that was checked
            start = step.parent if directory is None else Path()
            found = os.open(start / target, flags, dir_fd=directory)
            stack.callback(os.close, found)
        return found

    def check_server(self, sock: ConnectedSocket) -> None:
        """Check the uid of the process that listens at the other end.

        Args:
            sock: connected; nothing was sent yet.

        Raises:
            UntrustedServerError: the uid is not trusted. The socket stays open.
        """
        self._check_owner(uid_of(sock), "the listening process belongs to")

    def _check_owner(self, uid: int, subject: str) -> None:
        if uid in self.uids:
            return
        known = "neither this user's, nor root's, nor the service's"
        if uid == overflow_uid():
            known = "that of every user who is not mapped into this user namespace"
        raise UntrustedServerError(self.path, uid, f"{subject} uid {uid}, {known}")


def uid_of(sock: ConnectedSocket) -> int:
    """Return the uid at the other end of a Unix socket, by the kernel's word."""
    return credentials_of(sock).uid


def trusted_uids_from(environ: Mapping[str, str]) -> frozenset[int]:
    """Parse the uids of ``$INFERD_TRUST_UID``.

    Raises:
        ClientError: it is not a list of uids.
    """
    words = environ.get(TRUST_VARIABLE, "")
    uids = [word.strip() for word in words.split(",") if word.strip()]
    if not all(map(_UID.fullmatch, uids)):
        raise ClientError(f"{TRUST_VARIABLE} is not a list of uids: {words!r}")
    return frozenset(map(int, uids))


def _service_uids(path: Path) -> frozenset[int]:
    """Return the service's uid for a path where only root or the service can bind."""
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
