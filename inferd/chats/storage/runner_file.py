"""The name of a bridge among those that generate answers, which it has again after a restart."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from inferd.trusted_path import open_directory

FILE_NAME: Final = "chats-runner"
_NAME: Final = re.compile(rb"[0-9a-f]{32}\Z")
_NAME_BYTES: Final = 32


@contextmanager
def held_name(directory: Path, new_name: str) -> Iterator[str]:
    """Hold a name that no other process has while inside.

    It is that of the last process that held it, which has ended: what was recorded under it is
    nobody's. Where another process holds it, the new name is given.

    Raises:
        UntrustedError, OSError: the directory cannot be used.
    """
    parent = open_directory(directory, makes=True)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(FILE_NAME, flags, 0o600, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        yield _name_in(file, new_name)
    finally:
        os.close(file)


def _name_in(file: int, new_name: str) -> str:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return new_name
    found = os.pread(file, _NAME_BYTES + 1, 0)
    if _NAME.match(found):
        return found.decode()
    os.pwrite(file, new_name.encode(), 0)
    os.ftruncate(file, _NAME_BYTES)
    return new_name
