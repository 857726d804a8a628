"""Files copied by descriptor, into directories that nobody else may change.

`inferd.trusted_path` opens such directories. Files below may be used by their path, because
nobody else can replace them.
"""

import hashlib
import os
import stat
import subprocess
from pathlib import Path
from typing import Final

from inferd.trusted_path import DIRECTORY, UntrustedError

FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_DEPTH: Final = 32
"""Nesting depth of copied sources; ours have 6 levels."""
MAX_FILES: Final = 10_000
"""Files of copied sources; ours have 300."""
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one of them; ours have 0.3 MB."""
BLOCK_BYTES: Final = 1024 * 1024
REMOVE_S: Final = 120.0
"""Seconds for removing another user's files with that user's rights, who may keep adding
files."""


def open_file(name: str, directory: int) -> int:
    """Open a regular file for reading: no link, no pipe, no device.

    Raises:
        UntrustedError: it is not a regular file.
        OSError: it does not exist.
    """
    descriptor = os.open(name, FILE, dir_fd=directory)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise UntrustedError(f"{name} is no plain file")


def sha256_of(descriptor: int) -> str:
    """Compute the SHA-256 of an open file, from its current position."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_file(
    source: int,
    directory: int,
    name: str,
    *,
    sha256: str | None = None,
    max_bytes: int = MAX_FILE_BYTES,
) -> str:
    """Copy an open file; it gets its name when it is complete and its SHA-256 is right.

    The written bytes are those that are hashed, and the source is not opened a second
    time.

    Returns:
        Its SHA-256.

    Raises:
        UntrustedError: it has another SHA-256, or more bytes.
    """
    partial = f".partial-{os.getpid()}-{name}"
    target = os.open(partial, NEW_FILE, 0o644, dir_fd=directory)
    try:
        with os.fdopen(target, "wb") as file:
            digest = _copy_bytes(source, file.fileno(), max_bytes, name)
            _check_digest(digest, sha256, name)
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.rename(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(partial, dir_fd=directory)
        raise
    return digest


def _copy_bytes(source: int, target: int, max_bytes: int, name: str) -> str:
    digest = hashlib.sha256()
    n_bytes = 0
    while block := os.read(source, BLOCK_BYTES):
        n_bytes += len(block)
        if n_bytes > max_bytes:
            raise UntrustedError(f"{name} has over {max_bytes} bytes")
        digest.update(block)
        rest = memoryview(block)
        while rest:
            rest = rest[os.write(target, rest) :]
    return digest.hexdigest()


def _check_digest(actual: str, expected: str | None, name: str) -> None:
    if expected is not None and actual != expected:
        raise UntrustedError(f"SHA-256 of {name} is {actual}, expected {expected}")


class TreeCopy:
    """Copier of directories that another user may change meanwhile.

    Regular files and directories are copied, each opened by the descriptor of its parent
    directory; a symbolic link or anything else is an error, so that nothing outside is
    read. Names that begin with a dot or `__pycache__` are left out.
    """

    def __init__(self) -> None:
        self._n_files = 0

    def copy(self, name: str, source: int, target: int, depth: int = 0) -> None:
        """Copy one name of a directory to another directory.

        Raises:
            UntrustedError: it is neither a file nor a directory, or exceeds `MAX_FILES`, `MAX_DEPTH`
                or `MAX_FILE_BYTES`.
        """
        status = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            self._copy_directory(name, source, target, depth + 1)
            return
        self._n_files += 1
        if self._n_files > MAX_FILES or depth > MAX_DEPTH:
            raise UntrustedError(f"too many files to copy at {name}")
        file = open_file(name, source)
        try:
            copy_file(file, target, name)
        finally:
            os.close(file)

    def _copy_directory(self, name: str, source: int, target: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise UntrustedError(f"{name} is nested over {MAX_DEPTH} directories deep")
        os.mkdir(name, 0o755, dir_fd=target)
        opened = os.open(name, DIRECTORY, dir_fd=source)
        made = os.open(name, DIRECTORY, dir_fd=target)
        try:
            with os.scandir(opened) as entries:
                for entry in entries:
                    if not entry.name.startswith((".", "__pycache__")):
                        self.copy(entry.name, opened, made, depth)
        finally:
            os.close(made)
            os.close(opened)


def replace_link(target: Path, directory: int, name: str) -> None:
    """Replace a symbolic link atomically."""
    partial = f".partial-{os.getpid()}-{name}"
    os.symlink(target, partial, dir_fd=directory)
    os.rename(partial, name, src_dir_fd=directory, dst_dir_fd=directory)


def remove_tree(name: str, directory: int) -> bool:
    """Remove a directory that may belong to another user; tell whether it is gone.

    Another user's directory is removed with that user's rights, so that only files which
    that user could remove are lost, whatever is swapped meanwhile; links are not followed.
    """
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return True
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=directory)
        return True
    opened = os.open(name, DIRECTORY, dir_fd=directory)
    try:
        _empty(opened)
        os.rmdir(name, dir_fd=directory)
    except OSError:
        return False
    finally:
        os.close(opened)
    return True


def _empty(opened: int) -> None:
    """Remove the content of a directory, as its owner."""
    owner = os.fstat(opened)
    is_other = owner.st_uid != os.geteuid()
    try:
        subprocess.run(
            ["/usr/bin/find", ".", "-xdev", "-mindepth", "1", "-delete"],
            cwd=f"/proc/self/fd/{opened}",
            user=owner.st_uid if is_other else None,
            group=owner.st_gid if is_other else None,
            extra_groups=[] if is_other else None,
            env={"PATH": "/usr/bin:/bin"},
            check=False,
            timeout=REMOVE_S,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # else the owner could write to root's terminal
        )
    except subprocess.TimeoutExpired as error:
        raise OSError("its owner keeps adding to it") from error
