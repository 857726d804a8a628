"""Directories that nobody else may change.

A user who may write to a directory decides what the rest of a path below it means, at any
time. So a directory is opened from the top down, one name at a time and each by the descriptor
of its parent, and directories that another user owns or may write to are refused. Files below
may then be used by their path, because nobody else can replace them.
"""

import errno
import os
import stat
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSED: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNOPENED: Final = os.O_PATH | os.O_CLOEXEC
_READING: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MAX_LINKS: Final = 40
"""Symbolic links in one path; the kernel's own bound."""


class UntrustedError(Exception):
    """Another user may change a path that has to be trusted; one line."""


def open_directory(path: Path, *, makes: bool = False) -> int:
    """Open a directory that only root and the caller may change, at any part of its path.

    Symbolic links are followed as far as they, too, are root's or the caller's.

    Args:
        path: of the directory.
        makes: whether missing directories are created, with mode 0755.

    Returns:
        A descriptor, which is the caller's to close.

    Raises:
        UntrustedError: a part of it belongs to another user, or others may write there.
        OSError: it does not exist, or is not a directory.
    """
    walk = _Walk(DIRECTORY)
    with ExitStack() as stack:
        stack.callback(walk.close)
        walk.go(path, makes=makes)
        walk.check(sticky_is_enough=False)
        return os.dup(walk.last)


def open_regular_file(
    path: Path, *, at: int | None = None, follows: bool = True
) -> int:
    """Open a regular file for reading; anything else is refused and never opened.

    To open a device is to use it: a watchdog starts, a tape rewinds. And who opens a FIFO
    may wait for its writer, who in turn sees a reader. So the file is looked at through a
    descriptor that opens nothing, and that one file is then opened for reading.

    Args:
        path: of the file.
        at: descriptor of the directory that a relative path begins at.
        follows: whether a symbolic link at the end of the path is followed.

    Returns:
        A descriptor, which is the caller's to close.

    Raises:
        OSError: it cannot be opened, or is something else.
    """
    flags = _UNOPENED if follows else _UNOPENED | os.O_NOFOLLOW
    found = os.open(path, flags, dir_fd=at)
    try:
        _refuse_irregular(os.fstat(found).st_mode, path)
        return os.open(f"/proc/self/fd/{found}", _READING)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(found)


def _refuse_irregular(mode: int, path: Path) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode) or stat.S_ISLNK(mode):  # as the kernel refuses to read them
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ELOOP
        raise OSError(number, os.strerror(number), str(path))
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def open_unredirected_file(path: Path) -> int:
    """Open a regular file for reading, without following another user's links.

    Its directories may be anybody's: what the file has is its owner's, as with any path, but
    nobody makes a privileged process read another file than the one that is named, nor wait
    for the writer of a FIFO.

    Args:
        path: of the file. Links are followed as in ``open_directory``, but for the last one.

    Returns:
        A descriptor, which is the caller's to close.

    Raises:
        UntrustedError: a link on the way is another user's.
        OSError: it cannot be opened, is a link, or is no regular file.
    """
    walk = _Walk(_PASSED, is_open_to_others=True)
    with ExitStack() as stack:
        stack.callback(walk.close)
        walk.go(path.parent, makes=False)
        return open_regular_file(Path(path.name), at=walk.last, follows=False)


def is_link_of_others(status: os.stat_result) -> bool:
    """Tell whether a file, not followed, is a link that neither root nor the caller made."""
    return stat.S_ISLNK(status.st_mode) and status.st_uid not in {0, os.geteuid()}


class _Walk:
    """The open directories from the root to the current one.

    Args:
        flags: that directories are opened with.
        is_open_to_others: whether others may own the directories, and write to them.
    """

    def __init__(self, flags: int, *, is_open_to_others: bool = False) -> None:
        self._flags = flags
        self._is_open_to_others = is_open_to_others
        self._held = [(os.open("/", flags), "/")]
        self._owners = {0, os.geteuid(), os.fstat(self.last).st_uid}
        """Owner of the root directory, who may change everything; in a user namespace this may
        be an unmapped user."""

    @property
    def last(self) -> int:
        """Descriptor of the current directory."""
        return self._held[-1][0]

    def close(self) -> None:
        """Close all."""
        for descriptor, _ in self._held:
            os.close(descriptor)

    def go(self, path: Path, *, makes: bool) -> None:
        """Go down from the root to a directory, link by link."""
        todo = list(reversed((Path.cwd() / path).parts[1:]))
        n_links = 0
        while todo:
            name = todo.pop()
            self.check(sticky_is_enough=True)
            link = self.link(name)
            if link is None:
                self.enter(name, makes=makes)
                continue
            n_links += 1
            if n_links > MAX_LINKS:
                raise UntrustedError(f"{path} has over {MAX_LINKS} symbolic links")
            todo.extend(reversed(Path(link).parts))

    def link(self, name: str) -> str | None:
        """Return the target of a symbolic link; ``None`` for other files."""
        try:
            status = os.stat(name, dir_fd=self.last, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISLNK(status.st_mode):
            return None
        self._check_owner(status, self._path(name))
        return os.readlink(name, dir_fd=self.last)

    def enter(self, name: str, *, makes: bool) -> None:
        """Go one step down, or up, or to the top."""
        while name == "/" and len(self._held) > 1:
            os.close(self._held.pop()[0])
        if name == ".." and len(self._held) > 1:
            os.close(self._held.pop()[0])
        if name in ("/", ".."):
            return
        if makes:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=self.last)
        path = self._path(name)
        try:
            self._held.append((os.open(name, self._flags, dir_fd=self.last), path))
        except OSError as error:
            raise type(error)(error.errno, error.strerror, path) from error
        if not self._is_open_to_others:
            self._check_owner(os.fstat(self.last), path)

    def _path(self, name: str) -> str:
        return str(Path(self._held[-1][1]) / name)

    def check(self, *, sticky_is_enough: bool) -> None:
        """Check who may add or replace files in the current directory.

        Raises:
            UntrustedError: others may replace files; in a sticky directory they only add.
        """
        if self._is_open_to_others:
            return
        status, path = os.fstat(self.last), self._held[-1][1]
        mode = status.st_mode
        if sticky_is_enough and mode & stat.S_ISVTX:
            return
        is_own_group = os.geteuid() != 0 and status.st_gid == os.getegid()
        if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not is_own_group):
            raise UntrustedError(
                f"{path} can be written to by others (mode {stat.S_IMODE(mode):04o}); "
                f"chmod go-w {path}"
            )

    def _check_owner(self, status: os.stat_result, path: str) -> None:
        if status.st_uid not in self._owners:
            raise UntrustedError(f"{path} belongs to another user, uid {status.st_uid}")
