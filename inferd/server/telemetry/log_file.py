"""The log file: bounded in size, rotated, private to its user, and not a symlink.

Used by one thread. Other processes may move, remove or fill the file and its directory,
and other daemons may write to it: lines are written by one ``write`` at the end of the file
that has the name at that moment.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from inferd.service.log_writer import n_within

MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700

OPEN_FLAGS: Final = (
    os.O_RDWR  # the last byte is read, too
    | os.O_APPEND
    | os.O_CREAT
    | os.O_NOFOLLOW
    | os.O_NONBLOCK  # to open a FIFO of that name does not block
    | os.O_CLOEXEC
)


class LogFile:
    """Appends lines to a file; a full file is renamed to ``.1``, and so on.

    Args:
        path: of the file; its directory and the one above are made if missing.
        max_bytes: size at which the next line begins a new file.
        generations: number of full files that are kept.
    """

    def __init__(self, path: Path, *, max_bytes: int, generations: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._generations = generations
        self._fd = -1
        self._info: os.stat_result | None = None
        """Status of the open file; ``None`` while it is closed."""
        self._before = b""
        """Bytes to write before the next line: a newline after an incomplete one."""

    def __str__(self) -> str:
        return str(self._path)

    def write(self, lines: Sequence[bytes]) -> int:
        """Write lines, each with its newline; open the file again if it was moved or full.

        Returns:
            How many of them were written: as many as the file has room for.

        Raises:
            OSError: the first line was not written, or only in part.
        """
        try:
            if not self._is_current():
                self.close()
                self._open()
            while not (n_fitting := self._n_fitting(lines)):
                self._rotate()
                self.close()
                self._open()
            return self._append(lines[:n_fitting])
        except OSError:
            self.close()  # the next ``_open`` finds out whether a line is incomplete
            raise

    def close(self) -> None:
        """Close the file, unless its descriptor was closed and reused."""
        if self._info is not None:
            with suppress(OSError):
                if os.path.samestat(os.fstat(self._fd), self._info):
                    os.close(self._fd)
        self._info = None

    def _is_current(self) -> bool:
        """Tell whether the open file is still the one at the path."""
        if self._info is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._fd), os.lstat(self._path))
        except OSError:
            return False

    def _n_fitting(self, lines: Sequence[bytes]) -> int:
        """Count the first lines that fit into the file; an empty one takes any line."""
        size = os.fstat(self._fd).st_size
        n_lines = n_within(lines, self._max_bytes - size - len(self._before))
        return n_lines if size else max(1, n_lines)

    def _open(self) -> None:
        directory = _open_directory(self._path.parent)
        try:
            self._fd = os.open(self._path.name, OPEN_FLAGS, MODE, dir_fd=directory)
        finally:
            os.close(directory)
        self._info = os.fstat(self._fd)
        if not _is_ours_alone(self._info):
            raise PermissionError(
                errno.EPERM, "not a regular file that this user alone owns"
            )
        if stat.S_IMODE(self._info.st_mode) != MODE:  # made with another mode
            os.fchmod(self._fd, MODE)
        self._before = b"\n" if _is_torn(self._fd, self._info.st_size) else b""

    def _append(self, lines: Sequence[bytes]) -> int:
        data = self._before + b"".join(lines)
        n_bytes = os.write(self._fd, data)
        if n_bytes == len(data):
            self._before = b""
            return len(lines)
        n_lines = n_within(lines, n_bytes - len(self._before))
        if not n_lines:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.close()  # as after an error
        return n_lines

    def _rotate(self) -> None:
        """Rename the full file, unless another daemon has done so.

        Two daemons that rotate at once would rename each other's new files over the old
        ones. The lock is on the full file, and is released when that is closed.
        """
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        if not self._is_current():
            return
        if not self._generations:
            self._path.unlink()
        for n in range(self._generations, 0, -1):
            with suppress(FileNotFoundError):
                self._generation(n - 1).rename(self._generation(n))

    def _generation(self, n: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{n}") if n else self._path


def _is_ours_alone(info: os.stat_result) -> bool:
    """Tell whether it is a regular file of this user's without other hard links."""
    is_ours = info.st_uid == os.geteuid() and info.st_nlink == 1
    return stat.S_ISREG(info.st_mode) and is_ours


def _is_torn(fd: int, n_bytes: int) -> bool:
    return n_bytes > 0 and os.pread(fd, 1, n_bytes - 1) != b"\n"


def _open_directory(path: Path) -> int:
    """Open the directory, which is made if it is missing.

    Raises:
        OSError: it cannot be opened, or other users may write to it.
    """
    for each in (path.parent, path):
        with suppress(FileExistsError):
            each.mkdir(mode=DIRECTORY_MODE)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    info = os.fstat(fd)
    if info.st_uid not in (os.geteuid(), 0) or info.st_mode & 0o022:
        os.close(fd)
        raise PermissionError(errno.EPERM, "other users may write to its directory")
    return fd
