"""Directories of a store for files of one command, which end with it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from inferd.limits.models import LOCK_WAIT_S
from inferd.models.store.directory import (
    StoreDirectory,
    StoreError,
    lock_within,
    try_lock,
)
from inferd.trusted_path import DIRECTORY

_PREFIX: Final = ".scratch-"


@contextmanager
def scratch_directory(directory: StoreDirectory) -> Iterator[Path]:
    """Make a directory that is removed at the end; its user alone may read it.

    Those of commands that were killed are removed before.

    Raises:
        StoreError: another process is changing the store.
        OSError: it cannot be made.
    """
    remove_idle_scratch(directory)
    with directory.locked():
        path = Path(tempfile.mkdtemp(dir=directory.path, prefix=_PREFIX))
        descriptor = os.open(path, DIRECTORY)
        # commands that list what is unused lock it for a moment, to see who does
        is_locked = lock_within(descriptor, LOCK_WAIT_S)
    try:
        if not is_locked:
            raise StoreError(f"another process has had {path} for {LOCK_WAIT_S:g} s")
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def idle_scratch(directory: StoreDirectory) -> list[Path]:
    """List those whose command has ended."""
    return [
        path
        for path in sorted(directory.path.glob(f"{_PREFIX}*"))
        if not path.is_symlink() and _is_idle(path)
    ]


def remove_idle_scratch(directory: StoreDirectory) -> None:
    """Remove those whose command has ended.

    Raises:
        StoreError: another process is changing the store.
    """
    with directory.locked():
        for path in idle_scratch(directory):
            shutil.rmtree(path, ignore_errors=True)


def size_of(path: Path) -> int:
    """Add up the bytes of a directory's files; links are not followed."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(Path(folder) / name).st_size
    return total


def _is_idle(path: Path) -> bool:
    with suppress(OSError):
        descriptor = os.open(path, DIRECTORY)
        try:
            return try_lock(descriptor)
        finally:
            os.close(descriptor)
    return False
