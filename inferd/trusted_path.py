"""Directories that nobody else may change.

A user who may write to a directory decides what the rest of a path below it means, at any
time. So a directory is opened from the top down, one name at a time and each by the descriptor
of its parent, and directories that another user owns or may write to are refused. Files below
may then be used by their path, because nobody else can replace them.
"""

import os
import stat
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
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
    walk = _Walk()
    with ExitStack() as stack:
        stack.callback(walk.close)
        todo = list(reversed((Path.cwd() / path).parts[1:]))
        n_links = 0
        while todo:
            name = todo.pop()
            walk.check(sticky_is_enough=True)
            link = walk.link(name)
            if link is None:
                walk.enter(name, makes=makes)
                continue
            n_links += 1
            if n_links > MAX_LINKS:
                raise UntrustedError(f"{path} has over {MAX_LINKS} symbolic links")
            todo.extend(reversed(Path(link).parts))
        walk.check(sticky_is_enough=False)
        return os.dup(walk.last)


class _Walk:
    """The open directories from the root to the current one."""

    def __init__(self) -> None:
        self._held = [(os.open("/", DIRECTORY), "/")]
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
            self._held.append((os.open(name, DIRECTORY, dir_fd=self.last), path))
        except OSError as error:
            raise type(error)(error.errno, error.strerror, path) from error
        self._check_owner(os.fstat(self.last), path)

    def _path(self, name: str) -> str:
        return str(Path(self._held[-1][1]) / name)

    def check(self, *, sticky_is_enough: bool) -> None:
        """Check who may add or replace files in the current directory.

        Raises:
            UntrustedError: others may replace files; in a sticky directory they only add.
        """
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
