"""The directories of a store, by descriptor, and the lock for changes.

Layout::

    models/
      blobs/SHA256          contents of files; never changed, only added and removed
      manifests/NAME.json   one for each model
      partial/KEY           files that are not complete yet; a lock on one says it is in use
      quarantine/SHA256     contents that are not what they should be
      lock                  held while manifests change
"""

import fcntl
import os
import stat
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from inferd.limits.models import LOCK_WAIT_S
from inferd.trusted_path import DIRECTORY, UntrustedError, open_directory

BLOBS: Final = "blobs"
MANIFESTS: Final = "manifests"
PARTIAL: Final = "partial"
QUARANTINE: Final = "quarantine"
LOCK: Final = "lock"
_PARTS: Final = (BLOBS, MANIFESTS, PARTIAL, QUARANTINE)
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCK_POLL_S: Final = 0.02


class StoreError(Exception):
    """The store cannot do what was asked; the message is one line."""


class StoreDirectory:
    """The open directories of a store.

    Methods raise ``OSError`` if the file system does. Files are named by their directory in
    the store and their name in it.
    """

    def __init__(self, path: Path, root: int, parts: dict[str, int]) -> None:
        self.path = path
        self._root = root
        self._parts = parts
        self._finalizer = weakref.finalize(self, _close, root, parts)

    @classmethod
    def open(cls, path: Path, *, makes: bool) -> Self | None:
        """Open a store.

        Args:
            path: of the store.
            makes: whether what is missing is made.

        Returns:
            The store; ``None`` if there is none and ``makes`` is false.

        Raises:
            StoreError: other users may write to it, or to a directory above it.
            OSError: it cannot be opened or made.
        """
        parts: dict[str, int] = {}
        try:
            root = open_directory(path, makes=makes)
        except FileNotFoundError:
            return None
        except UntrustedError as error:
            raise StoreError(f"the model store cannot be trusted: {error}") from error
        try:
            for name in _PARTS:
                if makes:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o755, dir_fd=root)
                with suppress(FileNotFoundError):
                    parts[name] = os.open(name, DIRECTORY, dir_fd=root)
        except BaseException:
            _close(root, parts)
            raise
        if len(parts) == len(_PARTS):
            return cls(path, root, parts)
        _close(root, parts)
        return None

    def close(self) -> None:
        """Close the descriptors, at the latest when nothing refers to the store."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- files --------------------------------------------------------------------

    def path_of(self, part: str, name: str) -> Path:
        """Return a file's path, for messages."""
        return self.path / part / name

    def names(self, part: str) -> list[str]:
        """List the files of a directory, sorted."""
        with os.scandir(self._parts[part]) as entries:
            return sorted(entry.name for entry in entries)

    def status(self, part: str, name: str) -> os.stat_result:
        """Return the status of a file; links are not followed."""
        return os.stat(name, dir_fd=self._parts[part], follow_symlinks=False)

    def open_file(self, part: str, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a regular file; a new one has mode 0644.

        Raises:
            StoreError: it is something else.
        """
        descriptor = os.open(name, flags | _FILE, 0o644, dir_fd=self._parts[part])
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise StoreError(f"{self.path_of(part, name)} is not a regular file")

    def move(self, part: str, name: str, to_part: str, to_name: str) -> None:
        """Rename a file, in place of one that is there, and have that on the disk."""
        source, target = self._parts[part], self._parts[to_part]
        os.rename(name, to_name, src_dir_fd=source, dst_dir_fd=target)
        os.fsync(target)

    def link(self, descriptor: int, part: str, name: str) -> None:
        """Give an open file one more name.

        Raises:
            OSError: it is on another file system, or that has no hard links.
        """
        os.link(
            f"/proc/self/fd/{descriptor}",
            name,
            dst_dir_fd=self._parts[part],
            follow_symlinks=True,
        )

    def remove(self, part: str, name: str) -> None:
        """Remove a file, and have that on the disk."""
        os.unlink(name, dir_fd=self._parts[part])
        os.fsync(self._parts[part])

    def check_writable(self) -> None:
        """Check that this user may change the store.

        Raises:
            OSError: the file system is read-only, or it belongs to another user.
        """
        descriptor = self._open_lock()
        os.close(descriptor)

    def free_bytes(self) -> int:
        """Tell how many bytes the file system has for this user."""
        system = os.fstatvfs(self._root)
        return system.f_bavail * system.f_frsize

    # --- locks --------------------------------------------------------------------

    @contextmanager
    def locked(self, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
        """Hold the lock for changes.

        Raises:
            StoreError: another process holds it all the time.
        """
        descriptor = self._open_lock()
        try:
            if not lock_within(descriptor, wait_s):
                raise StoreError(
                    f"another process has been changing {self.path} for {wait_s:g} s"
                )
            yield
        finally:
            os.close(descriptor)

    def _open_lock(self) -> int:
        return os.open(LOCK, os.O_RDWR | os.O_CREAT | _FILE, 0o600, dir_fd=self._root)


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; false if another holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_within(descriptor: int, wait_s: float) -> bool:
    """Lock an open file until it is closed; false if others hold it all the time."""
    deadline = time.monotonic() + wait_s
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOCK_POLL_S)
    return True


def _close(root: int, parts: dict[str, int]) -> None:
    for descriptor in (root, *parts.values()):
        os.close(descriptor)
