"""Contents of a store: written once, found by their SHA-256, checked while written."""

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from inferd.limits.models import BLOB_BLOCK_BYTES, STORE_FREE_BYTES
from inferd.models.store.directory import (
    BLOBS,
    PARTIAL,
    QUARANTINE,
    StoreDirectory,
    StoreError,
    try_lock,
)

_FICLONE: Final = 0x40049409
"""``ioctl`` of Linux that gives a file the blocks of another, copied when they change."""
Progress = Callable[[int], object]
"""Is called with the bytes that are done."""


class DigestError(StoreError):
    """A file is not the one that was announced; what was downloaded is in the quarantine."""


class StoreFullError(StoreError):
    """The file system has no space for a file."""


class FileBusyError(StoreError):
    """Another command is writing the same file."""


class PartialFile:
    """A file on its way into the store; use it as a context.

    What is written stays when the context ends, so that a later one with the same key goes
    on behind it. Nobody else can have the same key open.

    Args:
        directory: of the store.
        key: names the source; a file name.
    """

    def __init__(self, directory: StoreDirectory, key: str) -> None:
        self._directory = directory
        self._key = key
        self._digest = hashlib.sha256()
        self._descriptor = directory.open_file(PARTIAL, key, os.O_RDWR | os.O_CREAT)
        self.n_bytes = 0
        """Bytes that are written."""

    def __enter__(self) -> Self:
        """Lock the file, and hash what an earlier context has written.

        Raises:
            FileBusyError: another process has it open.
        """
        if not try_lock(self._descriptor) or not self._is_current():
            os.close(self._descriptor)
            raise FileBusyError("another command is writing this file already")
        while block := os.read(self._descriptor, BLOB_BLOCK_BYTES):
            self._count(block)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _is_current(self) -> bool:
        """Tell whether the file still has its name: who held the lock may have moved it."""
        with suppress(FileNotFoundError):
            now = self._directory.status(PARTIAL, self._key)
            return now.st_ino == os.fstat(self._descriptor).st_ino
        return False

    def reserve(self, n_bytes: int) -> None:
        """Check that the file system has the space for a file of so many bytes.

        Raises:
            StoreFullError: it has not.
        """
        missing = max(0, n_bytes - self.n_bytes) + STORE_FREE_BYTES
        if (free := self._directory.free_bytes()) < missing:
            raise StoreFullError(
                f"{self._directory.path} has {free} bytes free, and {missing} are needed"
            )

    def share(self, source: int) -> bool:
        """Take over the blocks of another file while this one is empty; false if it cannot."""
        if not share_blocks(source, self._descriptor):
            return False
        while block := os.read(self._descriptor, BLOB_BLOCK_BYTES):
            self._count(block)
        return True

    def write(self, data: bytes) -> None:
        """Add bytes.

        Raises:
            StoreFullError: it is full; what was written before stays.
        """
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            os.ftruncate(self._descriptor, self.n_bytes)
            os.lseek(self._descriptor, self.n_bytes, os.SEEK_SET)
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise StoreFullError(
                    f"{self._directory.path}: {error.strerror}"
                ) from error
            raise
        self._count(data)

    def restart(self) -> None:
        """Discard what is written."""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._digest, self.n_bytes = hashlib.sha256(), 0

    def sha256(self) -> str:
        """Return the SHA-256 of what is written."""
        return self._digest.hexdigest()

    def finish(self, sha256: str | None = None) -> str:
        """Have the file in the store, as a blob; return its SHA-256.

        Args:
            sha256: that it must have; ``None`` if nobody has announced it.

        Raises:
            DigestError: it has another one; the file is in the quarantine.
        """
        actual = self._digest.hexdigest()
        if sha256 not in {None, actual}:
            self._directory.move(PARTIAL, self._key, QUARANTINE, actual)
            raise DigestError(
                f"its SHA-256 is {actual}, expected {sha256}; it is kept as "
                f"{self._directory.path_of(QUARANTINE, actual)}"
            )
        os.fsync(self._descriptor)
        self._directory.move(PARTIAL, self._key, BLOBS, actual)
        return actual

    def discard(self) -> None:
        """Remove the file, unless it is finished."""
        if self._is_current():
            self._directory.remove(PARTIAL, self._key)

    def _count(self, data: bytes) -> None:
        self._digest.update(data)
        self.n_bytes += len(data)


def hash_file(descriptor: int, progress: Progress) -> str:
    """Compute the SHA-256 of an open file, from its beginning."""
    digest, n_bytes = hashlib.sha256(), 0
    os.lseek(descriptor, 0, os.SEEK_SET)
    while block := os.read(descriptor, BLOB_BLOCK_BYTES):
        digest.update(block)
        n_bytes += len(block)
        progress(n_bytes)
    return digest.hexdigest()


def share_blocks(source: int, target: int) -> bool:
    """Give a file the blocks of another, if the file system can."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True
