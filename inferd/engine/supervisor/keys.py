"""The keys of remote backends: descriptors that one worker each gets, and nothing else.

A key out of the environment is moved into a memfd and taken out of ``os.environ``, which other
processes would get, and out of what the kernel shows of it in ``/proc/PID/environ``. A
credential is opened for each worker; the daemon does not read it. A process that has had a key
cannot be inspected by others of its user: they could open its descriptors in ``/proc/PID/fd``.
"""

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from inferd.config.kinds.kind import Credential
from inferd.sandbox.privileges import refuse_inspection

CREDENTIALS_VARIABLE: Final = "CREDENTIALS_DIRECTORY"
"""Where systemd says that the credentials of a service are."""

_stashed: Final[dict[str, int]] = {}
"""By the names of variables, memfds with what they had: they stay for later workers."""


def stash_keys(credentials: Iterable[Credential | None]) -> None:
    """Take the keys out of the environment, before any process is started with it.

    Raises:
        OSError: out of descriptors.
    """
    for each in credentials:
        if each is not None and each.variable is not None:
            _stash(each.variable)


def open_key(credential: Credential | None) -> int | None:
    """Return a descriptor of a key, the caller's to close; ``None`` if there is none.

    Raises:
        OSError: out of descriptors, or the credential cannot be opened.
    """
    if credential is None:
        return None
    refuse_inspection()
    if credential.variable is not None:
        _stash(credential.variable)
        found = _stashed.get(credential.variable)
        return None if found is None else os.dup(found)
    directory = os.environ.get(CREDENTIALS_VARIABLE)
    if directory is None or credential.file is None:
        return None
    try:
        return os.open(Path(directory) / credential.file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _stash(variable: str) -> None:
    _wipe(variable.encode())
    key = os.environb.pop(variable.encode(), None)
    if not key:
        return
    refuse_inspection()
    fd = os.memfd_create("key", os.MFD_CLOEXEC)
    os.write(fd, key)
    if (before := _stashed.get(variable)) is not None:
        os.close(before)
    _stashed[variable] = fd


def _wipe(variable: bytes) -> None:
    """Overwrite the value where the process was given it; Python has a copy of its own."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    if (address := libc.getenv(variable)) is not None:
        ctypes.memset(address, 0, len(ctypes.string_at(address)))
