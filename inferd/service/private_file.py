"""Files of one user alone: read if nobody else could have written them, replaced as a whole."""

import os
import stat
from pathlib import Path
from typing import Final

from inferd.trusted_path import open_regular_file

ROOT_UID: Final = 0


class PrivateFileError(Exception):
    """A file cannot be used; one line."""


def read_private(path: Path, max_bytes: int) -> bytes | None:
    """Read a file; ``None`` if there is none.

    It belongs to this user, who alone may access it, or to root, whose group may read it.

    Raises:
        PrivateFileError: it cannot be read, is too large, or others may access it.
    """
    try:
        with os.fdopen(open_regular_file(path), "rb") as file:
            _check(path, os.fstat(file.fileno()))
            data = file.read(max_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PrivateFileError(f"{path}: {error.strerror}") from error
    if len(data) > max_bytes:
        raise PrivateFileError(f"{path}: over {max_bytes} bytes")
    return data


def _check(path: Path, status: os.stat_result) -> None:
    is_own = status.st_uid == os.geteuid()
    if not is_own and status.st_uid != ROOT_UID:
        raise PrivateFileError(f"{path}: belongs to uid {status.st_uid}")
    is_roots = status.st_uid == ROOT_UID
    refused = stat.S_IRWXO | (stat.S_IWGRP | stat.S_IXGRP if is_roots else stat.S_IRWXG)
    if status.st_mode & refused:
        mode = 640 if is_roots else 600
        raise PrivateFileError(f"{path}: others may access it; chmod {mode} {path}")


def replace_private(
    directory: int, name: str, data: bytes, *, reader_gid: int | None = None
) -> None:
    """Replace a file atomically, for this user alone.

    Args:
        directory: the open directory.
        name: of the file in it.
        data: all of it.
        reader_gid: a group that may read it, too.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    scratch = f"{name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(scratch, flags, 0o600, dir_fd=directory)
    with os.fdopen(descriptor, "wb") as file:
        if reader_gid is not None:
            os.fchown(descriptor, -1, reader_gid)
        os.fchmod(descriptor, 0o600 if reader_gid is None else 0o640)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    os.replace(scratch, name, src_dir_fd=directory, dst_dir_fd=directory)
