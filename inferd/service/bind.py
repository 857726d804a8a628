"""Bind Unix sockets whose mode and group are set before any client is accepted.

A directory that is made here gets mode 0700. A socket is bound under a umask that gives
it its mode, and gets its group before ``listen``. Nothing here follows a symlink that
another user may have put at the path meanwhile. A lock keeps a second daemon out.
"""

import fcntl
import grp
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import trio

from inferd.limits.connections import LISTEN_BACKLOG, SOCKET_PATH_BYTES


class ListenError(Exception):
    """A socket, its directory or the lock is unavailable; one line for the operator."""


def make_socket_directory(path: Path, *, group: str | None) -> None:
    """Make the directory of the sockets, or check that an existing one is safe.

    Raises:
        ListenError: another user could put a socket into it, or it cannot be made.
    """
    group_id = -1 if group is None else group_id_of(group)
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
        if path.is_symlink() or path.exists():
            check_socket_directory(path)
            return
        path.mkdir(mode=0o700)
        if group is not None:
            _open_to_group(path, group_id)
    except OSError as error:
        raise ListenError(f"socket directory {path}: {error.strerror}") from error


def _open_to_group(path: Path, group_id: int) -> None:
    """Give a group access to a directory, without following a symlink."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(fd, -1, group_id)
        os.fchmod(fd, 0o750)
    finally:
        os.close(fd)


def check_socket_directory(path: Path) -> None:
    """Refuse a directory into which another user could put a socket.

    Raises:
        ListenError: it is not a directory, belongs to another user, or is world-writable.
    """
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise ListenError(f"socket directory is not a directory: {path}")
    if info.st_uid not in (os.geteuid(), 0):
        raise ListenError(f"socket directory belongs to uid {info.st_uid}: {path}")
    if info.st_mode & stat.S_IWOTH:
        raise ListenError(f"socket directory may be written by anybody: {path}")


def group_id_of(name: str) -> int:
    """Look up a group's id by name.

    Raises:
        ListenError: no group has this name.
    """
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):  # ValueError: a NUL in the name
        raise ListenError(f"group not found: {name!r}") from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock that only one daemon at a time can hold.

    The file is not removed: otherwise two daemons could lock two files of the same name.

    Raises:
        ListenError: another daemon holds it, or the path is not usable as a lock file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    _check_lock_path(path)
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


def _check_lock_path(path: Path) -> None:
    if path.is_symlink():
        raise ListenError(f"lock path is a symlink (refused): {path}")
    if path.exists() and not path.is_file():
        raise ListenError(f"lock path is not a regular file: {path}")


def bind(path: Path, *, mode: int, group: str | None = None) -> trio.SocketListener:
    """Make a listener of ``bind_socket``."""
    sock = bind_socket(path, mode=mode, group=group)
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def bind_socket(path: Path, *, mode: int, group: str | None = None) -> socket.socket:
    """Bind a non-blocking Unix socket, replacing one that a previous process left behind.

    The daemon holds the lock, so no other daemon listens at the path; another program
    might.

    Raises:
        ListenError: the path is too long, a symlink or not a socket; something listens at
            it, or it is unknown whether anything does.
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
    try:
        return _listening(path, mode, group_id)
    except OSError as error:
        raise ListenError(f"socket {path}: {error.strerror}") from error


def _listening(path: Path, mode: int, group_id: int) -> socket.socket:
    with ExitStack() as stack:
        sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        _bind_with_mode(sock, path, mode)
        if group_id >= 0:
            os.chown(path, -1, group_id, follow_symlinks=False)
        sock.listen(LISTEN_BACKLOG)
        sock.setblocking(False)  # noqa: FBT003  # socket's own signature
        stack.pop_all()
        return sock


def _bind_with_mode(sock: socket.socket, path: Path, mode: int) -> None:
    """Bind a socket whose file has its mode from the start.

    Where others may write to the directory, they could replace the file with a symlink,
    and ``chmod`` would change the mode of the link's target.
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
    _check_not_listening(path)
    path.unlink()


def _check_not_listening(path: Path) -> None:
    """Refuse to replace a socket that another process listens at, such as systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003  # socket's own signature
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return
        except BlockingIOError:
            pass  # it listens, and its backlog is full
    raise ListenError(f"socket path is in use, something listens there: {path}")
