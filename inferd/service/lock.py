"""Who holds the lock of a directory, as the kernel lists it.

Trying to take the lock could make a daemon fail that starts just then.
"""

import os
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from inferd.paths import LOCK_NAME

LOCKS: Final = Path("/proc/locks")
_PROCESSES: Final = Path("/proc")
_COMMAND_BYTES: Final = 4096
"""Bytes of a command line, or of what the kernel says of an open file, that are read: a process
may make both as long as it likes. F-44."""
_OPEN_FILES: Final = 8192
"""Open files of a process that are looked at. F-44."""
_PID_FIELD: Final = 4
"""Which word of a line of the kernel's list is the process id."""


class LockState(StrEnum):
    """Whether some process holds a lock."""

    HELD = "held"
    FREE = "free"
    UNKNOWN = "unknown"


class LockHolder(NamedTuple):
    """What is known of a lock."""

    state: LockState
    reason: str = ""
    """Why the state is unknown."""
    pid: int = 0
    """The process that took the lock; 0 if that is unknown."""
    command: str = ""
    """Its command line; empty if that is unknown."""

    @property
    def is_foreign(self) -> bool:
        """Whether a process holds the lock that is no daemon of ours."""
        names = {Path(word).name for word in self.command.split()}
        return bool(self.command) and "inferd" not in names


def lock_holder(directory: Path, locks: Path = LOCKS) -> LockHolder:
    """Find out who holds the lock of a directory.

    Args:
        directory: of the sockets and the lock.
        locks: the kernel's list of locks.
    """
    path = directory / LOCK_NAME
    try:
        info = path.lstat()
        lines = locks.read_text().splitlines()
    except FileNotFoundError as error:
        if error.filename == str(path):
            return LockHolder(LockState.FREE)
        return LockHolder(LockState.UNKNOWN, f"{error.filename}: {error.strerror}")
    except OSError as error:
        return LockHolder(LockState.UNKNOWN, f"{error.filename}: {error.strerror}")
    device = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    for line in lines:
        words = line.split()
        if device in words and "FLOCK" in words:
            pid = int(words[_PID_FIELD]) if words[_PID_FIELD].isdigit() else 0
            pid = pid if _has_lock(pid, device) else 0
            return LockHolder(LockState.HELD, pid=pid, command=_command_of(pid))
    return LockHolder(LockState.FREE)


def _has_lock(pid: int, device: str) -> bool:
    """Tell whether a process has a lock open, as far as this user is told.

    The kernel lists who took a lock. That process may have ended while another one that it
    started has the file open, and its id may be a third one's now.
    """
    try:
        with os.scandir(_PROCESSES / str(pid) / "fdinfo") as entries:
            files = [entry.path for entry in islice(entries, _OPEN_FILES)]
        return any(_names_lock(Path(path), device) for path in files)
    except PermissionError:
        return True
    except OSError:
        return False


def _names_lock(fdinfo: Path, device: str) -> bool:
    with suppress(FileNotFoundError), fdinfo.open("rb", buffering=0) as file:
        return device.encode() in file.read(_COMMAND_BYTES).split()
    return False


def _command_of(pid: int) -> str:
    """Read a command line; empty if the process is gone or hidden."""
    try:
        with (_PROCESSES / str(pid) / "cmdline").open("rb", buffering=0) as file:
            words = file.read(_COMMAND_BYTES).split(b"\0")
    except OSError:
        return ""
    return os.fsdecode(b" ".join(words)).strip()
