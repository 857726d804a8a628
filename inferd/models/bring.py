"""Import of files into the store: linked, shared or copied, and checked."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from inferd.limits.models import BLOB_BLOCK_BYTES
from inferd.models.found.model import FoundFile
from inferd.models.kinds import MAGIC_BYTES, kind_of
from inferd.models.store.blobs import (
    DigestError,
    PartialFile,
    StoreFullError,
    hash_file,
)
from inferd.models.store.directory import (
    BLOBS,
    PARTIAL,
    StoreDirectory,
    StoreError,
    try_lock,
)
from inferd.models.store.manifest import Kind, StoredFile

Progress = Callable[[int, int], object]
"""Is called with the bytes that are done, and all bytes of the file."""


class Means(StrEnum):
    """How a file came into the store."""

    KEPT = "was there"
    LINKED = "linked"
    SHARED = "shares its blocks"
    COPIED = "copied"


class Brought(NamedTuple):
    """A file that is in the store now."""

    file: StoredFile
    means: Means
    kind: Kind


def bring_file(
    directory: StoreDirectory, found: FoundFile, progress: Progress
) -> Brought:
    """Bring a file into the store; the file itself is not changed.

    It takes no space where that is safe: it is linked if it is on the same file system and
    nobody else may write to it; its blocks are shared if the file system can.

    Raises:
        StoreError: it is no model, changes meanwhile, differs from its announced SHA-256, or
            the file system is full.
        OSError: it cannot be read.
    """
    source = os.open(found.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return bring_open_file(directory, source, found, progress)
    finally:
        os.close(source)


def bring_open_file(
    directory: StoreDirectory, source: int, found: FoundFile, progress: Progress
) -> Brought:
    """Bring a file into the store as ``bring_file`` does; its path is for messages alone."""
    status = os.fstat(source)
    kind = _kind_of(source, status, found.path)
    sha256, means = _bring(directory, source, status, found, progress)
    stored = StoredFile(
        name=found.name, sha256=sha256, n_bytes=status.st_size, role=found.role
    )
    return Brought(stored, means, kind)


def now() -> str:
    """Return the time for a manifest."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _kind_of(source: int, status: os.stat_result, path: Path) -> Kind:
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path} is not a regular file")
    kind = kind_of(os.pread(source, MAGIC_BYTES, 0))
    if kind is None:
        raise StoreError(f"{path} is neither a GGUF file nor a model of whisper.cpp")
    return kind


def _bring(
    directory: StoreDirectory,
    source: int,
    status: os.stat_result,
    found: FoundFile,
    progress: Progress,
) -> tuple[str, Means]:
    key = f"import-{status.st_dev}-{status.st_ino}"
    if _is_own(status) and try_lock(source) and _link(directory, source, f"{key}-link"):
        sha256 = hash_file(source, lambda n_bytes: progress(n_bytes, status.st_size))
        if found.sha256 not in {None, sha256}:
            directory.remove(PARTIAL, f"{key}-link")
            raise DigestError(_differs(found, sha256))
        return sha256, _keep(directory, f"{key}-link", sha256, status.st_size)
    with PartialFile(directory, key) as partial:
        partial.restart()
        try:
            means = _copy(source, partial, status.st_size, progress)
        except StoreFullError:
            partial.discard()  # another import begins anew
            raise
        if partial.n_bytes != status.st_size:
            partial.discard()
            raise StoreError(f"{found.path} has changed while it was read")
        if found.sha256 not in {None, partial.sha256()}:
            partial.discard()  # the file is where it was
            raise DigestError(_differs(found, partial.sha256()))
        return partial.finish(), means


def _copy(source: int, partial: PartialFile, n_bytes: int, progress: Progress) -> Means:
    """Share the blocks of a file, or copy it.

    Raises:
        StoreFullError: there is no space for it.
    """
    partial.reserve(n_bytes)
    if partial.share(source):
        progress(n_bytes, n_bytes)
        return Means.SHARED
    os.lseek(source, 0, os.SEEK_SET)
    while block := os.read(source, BLOB_BLOCK_BYTES):
        partial.write(block)
        progress(partial.n_bytes, n_bytes)
    return Means.COPIED


def _is_own(status: os.stat_result) -> bool:
    """Tell whether nobody but this user may write to a file, and its readers may read it.

    A store of root's is read by services, which run as other users.
    """
    others = stat.S_IWGRP | stat.S_IWOTH
    if os.geteuid() == 0 and not status.st_mode & stat.S_IROTH:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & others


def _link(directory: StoreDirectory, source: int, name: str) -> bool:
    try:
        directory.link(source, PARTIAL, name)
    except FileExistsError:
        directory.remove(PARTIAL, name)
        return _link(directory, source, name)
    except OSError:
        return False
    return True


def _keep(directory: StoreDirectory, name: str, sha256: str, n_bytes: int) -> Means:
    """Move a link to the blobs, unless the blob is there and complete."""
    with suppress(FileNotFoundError):
        if directory.status(BLOBS, sha256).st_size == n_bytes:
            directory.remove(PARTIAL, name)
            return Means.KEPT
    directory.move(PARTIAL, name, BLOBS, sha256)
    return Means.LINKED


def _differs(found: FoundFile, sha256: str) -> str:
    return f"SHA-256 of {found.path} is {sha256}, expected {found.sha256}"
