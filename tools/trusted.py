"""Directories that nobody else may change, and files copied by descriptor.

A user who may write to a directory decides what the rest of a path below it means, at any
time. So the installer opens a directory from the top down, one name at a time and each by the
descriptor of its parent, and refuses directories that another user owns or may write to.
Files below may then be used by their path, because nobody else can replace them.
"""

import hashlib
import os
import stat
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_LINKS: Final = 40
"""Symbolic links in one path; the kernel's own bound."""
MAX_DEPTH: Final = 32
"""Nesting depth of copied sources; ours have 6 levels."""
MAX_FILES: Final = 10_000
"""Files of copied sources; ours have 300."""
MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one of them; ours have 0.3 MB."""
MAX_MODEL_BYTES: Final = 16 * 1024 * 1024 * 1024
"""Bytes of a file whose SHA-256 is known; a longer one cannot match."""
BLOCK_BYTES: Final = 1024 * 1024
REMOVE_S: Final = 120.0
"""Seconds for removing another user's files with that user's rights, who may keep adding
files."""


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
