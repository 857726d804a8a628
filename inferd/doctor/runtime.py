"""Checks of the runtime directory, the lock, the sockets, and a daemon that listens."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError
from inferd.client.peer_check import UntrustedServerError
from inferd.client.sync import watch_status
from inferd.doctor.check import Finding, failed, ok, warning
from inferd.limits.connections import SOCKET_PATH_BYTES
from inferd.paths import LOCK_NAME
from inferd.server.listen.bind import ListenError, check_socket_directory
from inferd.surfaces import (
    ADMIN,
    INFER,
    INFERENCE_MODE,
    SURFACES,
    Surface,
    inference_surfaces,
)

ADMIN_TIMEOUT_S = 2.0
LOCK_HELD = "held by a running daemon"
"""The finding about a lock that is held."""


def check_directory(directory: Path) -> Finding:
    """Check that the daemon can bind its sockets here, and no other user can."""
    n_bytes = len(os.fsencode(directory / INFER.socket))
    if n_bytes > SOCKET_PATH_BYTES:
        return failed(
            f"socket paths in {directory} have {n_bytes} bytes, "
            f"at most {SOCKET_PATH_BYTES} are possible",
            "set [listen] directory to a shorter path",
        )
    if not directory.exists():
        return ok(f"{directory} does not exist yet; the daemon creates it")
    try:
        check_socket_directory(directory)
    except ListenError as error:
        return failed(str(error), f"ls -ld {directory}")
    return ok(f"{directory}, mode {stat.S_IMODE(directory.stat().st_mode):04o}")


def check_lock(directory: Path, locks: Path = Path("/proc/locks")) -> Finding:
    """Check whether a daemon holds the lock.

    Trying to take the lock could make a daemon fail that starts just then, so the kernel's
    list of locks is read instead.
    """
    path = directory / LOCK_NAME
    if path.is_symlink():
        return failed(f"{path} is a symlink", f"rm {path}")
    try:
        info = path.stat()
        held = locks.read_text().splitlines()
    except OSError as error:
        if not path.exists():
            return ok("free: no daemon has run here")
        return warning(
            f"{error.filename}: {error.strerror}: cannot tell whether it is held"
        )
    device = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    for line in held:
        fields = line.split()
        if device in fields and "FLOCK" in fields:
            return ok(LOCK_HELD)
    return ok("free: no daemon runs here")


def check_sockets(
    directory: Path,
    *,
    admin_is_shared: bool = False,
    surfaces: Sequence[Surface] = SURFACES,
) -> Finding:
    """Check that the sockets exist with the right modes.

    Args:
        directory: of the sockets.
        admin_is_shared: whether others than operators may use the admin socket.
        surfaces: whose sockets are checked.
    """
    wanted = {ADMIN.socket: INFERENCE_MODE if admin_is_shared else ADMIN.mode}
    wanted |= {each.socket: each.mode for each in inference_surfaces(surfaces)}
    found: dict[str, int] = {}
    for leaf in wanted:
        path = directory / leaf
        if path.is_symlink():
            return failed(f"{path} is a symlink", f"rm {path}")
        if path.exists():
            found[leaf] = stat.S_IMODE(path.stat().st_mode)
    wrong = [leaf for leaf, mode in found.items() if mode != wanted[leaf]]
    if wrong:
        return failed(f"wrong mode of {', '.join(wrong)}", "inferd serve")
    if not found:
        return warning("none: no daemon runs here", "inferd serve")
    return ok(", ".join(f"{leaf} {mode:04o}" for leaf, mode in found.items()))


def check_admin(directory: Path) -> Finding:
    """Check whether a daemon answers, and its status."""
    try:
        for _, status in watch_status(directory, timeout_s=ADMIN_TIMEOUT_S):
            if status.status == "capabilities":
                continue
            text = " ".join(word for word in (status.status, status.phase) if word)
            return (
                ok(f"the daemon is {text}")
                if text == "ready"
                else warning(
                    f"the daemon is {text}"
                    + (f": {status.reason}" if status.reason else "")
                )
            )
    except NoDaemonError as error:
        return warning(str(error), "inferd serve")
    except ClientError as error:
        is_untrusted = isinstance(error, UntrustedServerError)
        detail = str(error) if is_untrusted else f"not a daemon: {error}"
        return failed(detail, "" if is_untrusted else "inferd status --watch")
    except OSError:
        return failed(
            f"no answer within {ADMIN_TIMEOUT_S:g} s", "inferd status --watch"
        )
    return failed("the daemon closed the admin socket", "inferd status --watch")
