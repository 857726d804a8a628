"""The log as a file of bounded size, which nobody else can read or put elsewhere.

Used by one thread. Others may move, remove or fill the file and its directory, and other
daemons may write to it: each line is one ``write`` at the end of the file of that name.
"""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700

OPEN_FLAGS: Final = (
    os.O_RDWR  # the last byte is read, too
    | os.O_APPEND
    | os.O_CREAT
    | os.O_NOFOLLOW
    | os.O_NONBLOCK  # a pipe of that name is an error and not a wait
    | os.O_CLOEXEC
)


class LogFile:
    """Lines at the end of a file; a full one is kept as ``.1``, and so on.

    Args:
        path: its directory is made, if the one that holds that is there.
        max_bytes: size at which the next line begins a new file.
        generations: full files that are kept.
    """

    def __init__(self, path: Path, *, max_bytes: int, generations: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._generations = generations
        self._fd = -1
        self._info: os.stat_result | None = None
        """Of the file as it was opened; ``None`` while none is."""
        self._before = b""
        """What has to be written before the next line: the end of a torn one."""

    def __str__(self) -> str:
        return str(self._path)

    def write(self, line: bytes) -> None:
        """Write a line with its newline; the file is opened anew wherever that helps.

        Raises:
            OSError: it was not written, or not to its end.
        """
        try:
            if not self._is_current():
                self.close()
                self._open()
            while self._is_full_with(line):
                self._rotate()
                self.close()
                self._open()
            self._append(line)
        except OSError:
            self.close()  # to open it next time shows whether a line was torn
            raise

    def close(self) -> None:
        """Close the file, unless its descriptor is something else's by now."""
        if self._info is not None:
            with suppress(OSError):
                if os.path.samestat(os.fstat(self._fd), self._info):
                    os.close(self._fd)
        self._info = None

    def _is_current(self) -> bool:
        """Tell whether what is open is the file that has the name."""
        if self._info is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._fd), os.lstat(self._path))
        except OSError:
            return False

    def _is_full_with(self, line: bytes) -> bool:
        size = os.fstat(self._fd).st_size
        return size > 0 and size + len(self._before + line) > self._max_bytes

    def _open(self) -> None:
        directory = _open_directory(self._path.parent)
        try:
            self._fd = os.open(self._path.name, OPEN_FLAGS, MODE, dir_fd=directory)
        finally:
            os.close(directory)
        self._info = os.fstat(self._fd)
        if not _is_ours_alone(self._info):
            raise PermissionError(errno.EPERM, "not a file of this user's alone")
        if stat.S_IMODE(self._info.st_mode) != MODE:  # somebody had it readable
            os.fchmod(self._fd, MODE)
        self._before = b"\n" if _is_torn(self._fd, self._info.st_size) else b""

    def _append(self, line: bytes) -> None:
        data = self._before + line
        if os.write(self._fd, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._before = b""

    def _rotate(self) -> None:
        """Move the full file away, unless another daemon has done so.

        Two that did it at once would move each other's new files over the old ones. The
        lock is the full file's, and let go of with it.
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
    """Tell whether it is an ordinary file of this user's that has no other name."""
    is_ours = info.st_uid == os.geteuid() and info.st_nlink == 1
    return stat.S_ISREG(info.st_mode) and is_ours


def _is_torn(fd: int, n_bytes: int) -> bool:
    return n_bytes > 0 and os.pread(fd, 1, n_bytes - 1) != b"\n"


def _open_directory(path: Path) -> int:
    """Open the directory, which is made if it is missing.

    Raises:
        OSError: it cannot be had, or somebody else may write to it.
    """
    for each in (path.parent, path):
        with suppress(FileExistsError):
            each.mkdir(mode=DIRECTORY_MODE)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    info = os.fstat(fd)
    if info.st_uid not in (os.geteuid(), 0) or info.st_mode & 0o022:
        os.close(fd)
        raise PermissionError(errno.EPERM, "others may write to its directory")
    return fd
