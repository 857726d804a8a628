"""Model files that are opened once and checked before a library reads them.

A library takes a path. It is given the path of this process's descriptor, so that it reads
the file that was checked, whatever the configured path names by then. A symlink is
followed, once: model stores are full of them.
"""

import errno
import hashlib
import hmac
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from inferd.config.kinds.registry import KINDS
from inferd.trusted_path import open_regular_file
from inferd.worker.backend import LoadError

_HASH_BLOCK_BYTES: Final = 8 * 1024 * 1024
MODEL_KIND: Final = "model file"
_NO_FILE: Final = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL)
"""Errors of a path where no regular file is."""


def describe_format_error(expected: bytes, found: bytes) -> str:
    """Describe a file with the wrong magic number, and which backend reads it.

    Args:
        expected: the magic number that the backend reads.
        found: the magic number of the file.
    """
    readers = {
        kind.file_format.magic: (kind.file_format.name, kind.name)
        for kind in KINDS.kinds
        if kind.file_format is not None
    }
    fault = f"not a {readers[expected][0]} file"
    if other := readers.get(found):
        fault += f' but a {other[0]} file, for kind = "{other[1]}"'
    return fault


class OpenedFile:
    """A file, or the parts that it was split into, open for reading.

    Args:
        path: of the file, or of the first part; nothing is open yet.
        kind: name of the file in messages.

    Ownership:
        Owns a descriptor of each part as long as it lives.
    """

    def __init__(self, path: Path, kind: str = MODEL_KIND) -> None:
        self.path = path
        self.kind = kind
        self.paths: list[Path] = []
        self.fds: list[int] = []
        weakref.finalize(self, _close_all, self.fds)
        self._opened: list[tuple[int, int]] = []
        """The stamp of each part before anything was read of it."""

    @property
    def library_paths(self) -> list[bytes]:
        """The paths for the library to open."""
        return [b"/proc/self/fd/%d" % fd for fd in self.fds]

    def refuse_if_changed(self) -> None:
        """Refuse a file that was changed since it was opened.

        A further name for it counts as a change: the time of one is all that tells whether
        somebody wrote to it, and perhaps wrote back what was there.

        Raises:
            LoadError: it was changed.
        """
        if [*map(_stamp, self.fds)] != self._opened:
            fault = "it changed while it was loaded"
            raise LoadError.of_file(self.path, fault, kind=self.kind, is_changed=True)

    def load_error(self, fault: str, *, is_broken: bool = False) -> LoadError:
        """Make the error for a fault of this file.

        Args:
            fault: what is wrong.
            is_broken: whether its content is at fault.
        """
        return LoadError.of_file(self.path, fault, kind=self.kind, is_broken=is_broken)

    def _open(self, path: Path) -> int:
        """Open a part; return its descriptor, which this object owns.

        What is read of it from now on is refused if it changes.
        """
        fd = _opened(path, self.kind)
        self.paths.append(path)
        self.fds.append(fd)
        self._opened.append(_stamp(fd))
        return fd


def check_sha256(
    file: OpenedFile,
    digests: str | Sequence[str],
    report_progress: Callable[[], None],
) -> None:
    """Compare a file's SHA-256, in constant time, with the expected one.

    Args:
        file: a file, or the parts that it was split into.
        digests: 64 lowercase hex digits, of each part if there are several.
        report_progress: called after each block, as a sign of life.

    Raises:
        LoadError: a digest differs or is missing, or a file was changed meanwhile.
    """
    for fd, path, expected in _with_digests(file, digests):
        actual = _sha256(fd, report_progress)
        file.refuse_if_changed()
        if not hmac.compare_digest(actual, expected):
            raise LoadError(
                f"{file.kind}: its SHA-256 is not the expected one",
                f"SHA-256 of {path} is {actual}, expected {expected}",
                is_broken_file=True,
            )


def _with_digests(
    file: OpenedFile, digests: str | Sequence[str]
) -> Iterator[tuple[int, Path, str]]:
    """Yield each part with the digest that it must have."""
    expected = [digests] if isinstance(digests, str) else digests
    if len(expected) != len(file.fds):
        raise file.load_error(
            f"it is in {len(file.fds)} files, and sha256 has {len(expected)}; allowed: a "
            f"list of {len(file.fds)}, one for each in order"
        )
    yield from zip(file.fds, file.paths, expected, strict=True)


def _sha256(fd: int, report_progress: Callable[[], None]) -> str:
    digest = hashlib.sha256()
    offset = 0
    while block := os.pread(fd, _HASH_BLOCK_BYTES, offset):
        digest.update(block)
        offset += len(block)
        report_progress()
    return digest.hexdigest()


def _opened(path: Path, kind: str) -> int:
    try:
        return open_regular_file(path)
    except OSError as error:
        if error.errno in _NO_FILE:
            fault = f"{kind} not found"
            raise LoadError(fault, f"{fault}: {path}") from None
        raise LoadError.of_file(path, str(error.strerror), kind=kind) from error


def _stamp(fd: int) -> tuple[int, int]:
    """Return size and ctime of a file; nobody can set the latter back."""
    status = os.fstat(fd)
    return status.st_size, status.st_ctime_ns


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
