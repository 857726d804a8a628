"""Bind sockets so that nobody gets in early, and hold the lock that makes it safe.

A directory of the daemon's own is made with mode 0700. A socket is made under a umask
that leaves it its mode, and gets its group before anybody is accepted; no mode and no
group is given by a path that somebody may have a link at by then.
"""

import fcntl
import grp
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from inferd.limits import LISTEN_BACKLOG, SOCKET_PATH_BYTES

INFERENCE_MODE = 0o660
ADMIN_MODE = 0o600


class ListenError(Exception):
    """A socket, its directory or the lock cannot be had; one line for the operator."""


def make_directory(path: Path, *, group: str | None) -> None:
    """Make the directory of the sockets, or make sure that an existing one is safe.

    Raises:
        ListenError: somebody else could put a socket in it, or it cannot be made.
    """
    group_id = -1 if group is None else group_id_of(group)
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
        if path.is_symlink() or path.exists():
            refuse_unsafe(path)
            return
        path.mkdir(mode=0o700)
        if group is not None:
            _open_to_group(path, group_id)
    except OSError as error:
        raise ListenError(f"socket directory {path}: {error.strerror}") from error


def _open_to_group(path: Path, group_id: int) -> None:
    """Let a group into a directory, and into no other that a link may lead to by now."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(fd, -1, group_id)
        os.fchmod(fd, 0o750)
    finally:
        os.close(fd)


def refuse_unsafe(path: Path) -> None:
    """Refuse a directory in which somebody else could put a socket.

    Raises:
        ListenError: it is none, belongs to somebody else, or anybody may write to it.
    """
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise ListenError(f"socket directory is not a directory: {path}")
    if info.st_uid not in (os.geteuid(), 0):
        raise ListenError(f"socket directory belongs to uid {info.st_uid}: {path}")
    if info.st_mode & stat.S_IWOTH:
        raise ListenError(f"socket directory may be written by anybody: {path}")


def group_id_of(name: str) -> int:
    """Look up a group.

    Raises:
        ListenError: there is none of this name.
    """
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):  # none can have a NUL in its name
        raise ListenError(f"group not found: {name!r}") from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock that only one daemon at a time can have.

    The file stays behind: removing it would let two daemons lock two files of one name.

    Raises:
        ListenError: another daemon holds it, or the path is no place for a lock.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    _refuse_odd_lock(path)
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        raise ListenError(f"lock {path}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ListenError(
                f"another inferd daemon already holds the lock at {path}"
            ) from None
        yield
    finally:
        os.close(fd)


def _refuse_odd_lock(path: Path) -> None:
    if path.is_symlink():
        raise ListenError(f"lock path is a symlink (refused): {path}")
    if path.exists() and not path.is_file():
        raise ListenError(f"lock path is not a regular file: {path}")


def bind(path: Path, *, mode: int, group: str | None = None) -> trio.SocketListener:
    """Bind a Unix socket, replacing one that a daemon before us left.

    Call it with the lock held: then whatever is there has no daemon behind it, but may
    have somebody else.

    Raises:
        ListenError: the path is too long, a symlink, something that is no socket, a
            socket that somebody listens at, or one of which that cannot be told.
    """
    n_bytes = len(os.fsencode(path))
    if n_bytes > SOCKET_PATH_BYTES:
        raise ListenError(
            f"socket path has {n_bytes} bytes, at most {SOCKET_PATH_BYTES} fit: {path}"
        )
    group_id = -1 if group is None else group_id_of(group)
    try:
        _remove_stale(path)
    except OSError as error:
        raise ListenError(f"socket path {path}: {error.strerror}") from error
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _bind_with_mode(sock, path, mode)
        if group is not None:
            os.chown(path, -1, group_id, follow_symlinks=False)
        sock.listen(LISTEN_BACKLOG)
        sock.setblocking(False)  # noqa: FBT003  # socket's own signature
    except OSError as error:
        sock.close()
        raise ListenError(f"socket {path}: {error.strerror}") from error
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def _bind_with_mode(sock: socket.socket, path: Path, mode: int) -> None:
    """Bind a socket whose file has its mode at once.

    Whoever may write to the directory can put a link in its place at any time, and
    ``chmod`` would give them whatever it leads to.
    """
    before = os.umask(0o777 & ~mode)
    try:
        sock.bind(os.fspath(path))
    finally:
        os.umask(before)


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise ListenError(f"socket path is a symlink (refused): {path}")
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"socket path is taken by something else: {path}")
    _refuse_live(path)
    path.unlink()


def _refuse_live(path: Path) -> None:
    """Refuse to take the place of a socket that somebody listens at: systemd, say."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003  # socket's own signature
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return
        except BlockingIOError:
            pass  # it listens, and has no room just now
    raise ListenError(f"socket path is in use, something listens there: {path}")
