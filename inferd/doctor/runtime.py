"""Checks of the directory, the lock, the sockets, and a daemon behind them."""

import os
import stat
from pathlib import Path

from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError
from inferd.client.sync import watch_status
from inferd.client.trust import UntrustedServerError
from inferd.doctor.check import Finding, failed, ok, warning
from inferd.limits import SOCKET_PATH_BYTES
from inferd.paths import (
    ADMIN_SOCKET,
    EMBED_SOCKET,
    INFER_SOCKET,
    INFER_V2_SOCKET,
    LOCK_NAME,
    RERANK_SOCKET,
)
from inferd.server.listen import ADMIN_MODE, INFERENCE_MODE, ListenError, refuse_unsafe

INFERENCE = (INFER_SOCKET, INFER_V2_SOCKET, EMBED_SOCKET, RERANK_SOCKET)
ADMIN_ANSWER_S = 2.0
HELD = "held by a running daemon"
"""What is found of the lock then."""


def check_directory(directory: Path) -> Finding:
    """Can the sockets be there, and can nobody else put some there?"""
    n_bytes = len(os.fsencode(directory / INFER_SOCKET))
    if n_bytes > SOCKET_PATH_BYTES:
        return failed(
            f"{directory} makes socket paths of {n_bytes} bytes, "
            f"at most {SOCKET_PATH_BYTES} fit",
            "set [listen] directory to a shorter one",
        )
    if not directory.exists():
        return ok(f"{directory} is not there yet; the daemon makes it")
    try:
        refuse_unsafe(directory)
    except ListenError as error:
        return failed(str(error), f"ls -ld {directory}")
    return ok(f"{directory}, mode {stat.S_IMODE(directory.stat().st_mode):04o}")


def check_lock(directory: Path, locks: Path = Path("/proc/locks")) -> Finding:
    """Does a daemon hold the lock?

    Trying to lock it would keep a daemon that starts just now from starting, so the
    kernel's list of locks is read instead.
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
        return warning(f"{error.filename}: {error.strerror}: is it held? not known")
    device = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    for line in held:
        fields = line.split()
        if device in fields and "FLOCK" in fields:
            return ok(HELD)
    return ok("free: no daemon runs here")


def check_sockets(directory: Path, *, admin_is_shared: bool = False) -> Finding:
    """Are the sockets there with the modes they should have?

    Args:
        directory: of the sockets.
        admin_is_shared: whether others than operators may listen.
    """
    admin_mode = INFERENCE_MODE if admin_is_shared else ADMIN_MODE
    wanted = {ADMIN_SOCKET: admin_mode} | dict.fromkeys(INFERENCE, INFERENCE_MODE)
    found: dict[str, int] = {}
    for leaf in wanted:
        path = directory / leaf
        if path.is_symlink():
            return failed(f"{path} is a symlink", f"rm {path}")
        if path.exists():
            found[leaf] = stat.S_IMODE(path.stat().st_mode)
    wrong = [leaf for leaf, mode in found.items() if mode != wanted[leaf]]
    if wrong:
        return failed(
            f"{', '.join(wrong)}: mode is not as it should be", "inferd serve"
        )
    if not found:
        return warning("none: no daemon runs here", "inferd serve")
    return ok(", ".join(f"{leaf} {mode:04o}" for leaf, mode in found.items()))


def check_admin(directory: Path) -> Finding:
    """Does a daemon answer, and how is it?"""
    try:
        for _, status in watch_status(directory, timeout_s=ADMIN_ANSWER_S):
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
        is_stranger = isinstance(error, UntrustedServerError)
        what = str(error) if is_stranger else f"not a daemon: {error}"
        return failed(what, "" if is_stranger else "inferd status --watch")
    except OSError:
        return failed(f"no answer within {ADMIN_ANSWER_S:g} s", "inferd status --watch")
    return failed("the daemon closed the admin socket", "inferd status --watch")
