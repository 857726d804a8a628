"""Checks of the runtime directory, the lock, the sockets, and a daemon that listens."""

import grp
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from inferd.client.discovery import NoDaemonError
from inferd.client.exchange import ClientError
from inferd.client.peer_check import UntrustedServerError
from inferd.client.sync import ExchangeBounds, watch_status
from inferd.doctor.check import Finding, failed, first, ok, warning
from inferd.limits.connections import SOCKET_PATH_BYTES
from inferd.paths import LOCK_NAME
from inferd.service.bind import ListenError, check_socket_directory
from inferd.service.lock import LOCKS, LockState, lock_holder
from inferd.service.units import service_of, stopped_service, unit_state
from inferd.surfaces import (
    ADMIN,
    INFER,
    INFERENCE_MODE,
    SURFACES,
    Surface,
    inference_surfaces,
)
from inferd.wire.status import AnyStatus

ADMIN_BOUNDS: Final = ExchangeBounds(seconds=2.0, n_bytes=4 * 1024 * 1024)
"""Of the answer of the process that listens, which may drip or pour for ever. F-44."""
UNIX_SOCKETS: Final = Path("/proc/net/unix")
"""The kernel's list of Unix sockets, with their paths."""
NO_GROUPS: Final[Mapping[str, str]] = MappingProxyType({})
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
    if not os.path.lexists(directory):
        return ok(f"{directory} does not exist yet; the daemon creates it")
    try:
        check_socket_directory(directory)
    except ListenError as error:
        return failed(str(error), _directory_hint(directory))
    return ok(f"{directory}, mode {stat.S_IMODE(directory.lstat().st_mode):04o}")


def _directory_hint(directory: Path) -> str:
    """Return what makes a directory safe, if this user can; else what shows it."""
    info = directory.lstat()
    is_own = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()
    return f"chmod o-w {directory}" if is_own else f"ls -ld {directory}"


def check_lock(directory: Path, locks: Path = LOCKS) -> Finding:
    """Check whether a daemon holds the lock, and not another program."""
    return first(_lock_findings(directory, locks))


def _lock_findings(directory: Path, locks: Path) -> Iterator[Finding]:
    path = directory / LOCK_NAME
    if path.is_symlink():
        yield failed(f"{path} is a symlink", f"rm {path}")
    holder = lock_holder(directory, locks)
    if holder.state is LockState.UNKNOWN:
        yield warning(f"{holder.reason}: cannot tell whether it is held")
    if holder.is_foreign:
        yield failed(
            f"held by process {holder.pid}, which is no daemon: {holder.command[:80]}",
            f"kill {holder.pid}",
        )
    if holder.state is LockState.HELD:
        yield ok(LOCK_HELD)
    if not os.path.lexists(path):
        yield ok("free: no daemon has run here")
    yield ok("free: no daemon runs here")


def check_sockets(
    directory: Path,
    *,
    admin_is_shared: bool = False,
    surfaces: Sequence[Surface] = SURFACES,
    groups: Mapping[str, str] = NO_GROUPS,
    unix_sockets: Path = UNIX_SOCKETS,
) -> Finding:
    """Check that the sockets are listened at, with the right modes and groups.

    Args:
        directory: of the sockets.
        admin_is_shared: whether others than operators may use the admin socket.
        surfaces: whose sockets are checked.
        groups: that sockets should have, by their file names.
        unix_sockets: the kernel's list of sockets.
    """
    wanted = {ADMIN.socket: INFERENCE_MODE if admin_is_shared else ADMIN.mode}
    wanted |= {each.socket: each.mode for each in inference_surfaces(surfaces)}
    paths = [directory / leaf for leaf in wanted]
    if links := [path for path in paths if path.is_symlink()]:
        return failed(f"{links[0]} is a symlink", f"rm {links[0]}")
    found = {path.name: path.lstat() for path in paths if os.path.lexists(path)}
    if not found:
        return warning("none: no daemon runs here", _start_hint(directory))
    stale = _stale(directory, found, unix_sockets)
    if stale:
        paths = [directory / leaf for leaf in stale]
        return warning(
            f"nobody listens at {', '.join(stale)}", f"rm {' '.join(map(str, paths))}"
        )
    return first(_right_findings(directory, found, wanted, groups))


def _right_findings(
    directory: Path,
    found: Mapping[str, os.stat_result],
    wanted: Mapping[str, int],
    groups: Mapping[str, str],
) -> Iterator[Finding]:
    modes = {leaf: stat.S_IMODE(info.st_mode) for leaf, info in found.items()}
    wrong = [leaf for leaf, mode in modes.items() if mode != wanted[leaf]]
    if wrong:
        yield failed(
            f"wrong mode of {', '.join(wrong)}",
            "; ".join(f"chmod {wanted[leaf]:04o} {directory / leaf}" for leaf in wrong),
        )
    for leaf, name in groups.items():
        if leaf in found and _group_of(found[leaf]) != name:
            yield failed(
                f"the group of {leaf} is {_group_of(found[leaf])}, not {name}",
                f"chgrp --no-dereference {name} {directory / leaf}",
            )
    yield ok(", ".join(f"{leaf} {mode:04o}" for leaf, mode in modes.items()))


def _stale(
    directory: Path, found: Mapping[str, os.stat_result], unix_sockets: Path
) -> list[str]:
    """List sockets that a process left behind; none if the kernel's list is not there."""
    try:
        lines = unix_sockets.read_bytes().split(b"\n")
    except OSError:
        return []
    # any user's socket may have a line break or other bytes in its path
    listed = {os.fsdecode(words[-1]) for words in map(bytes.split, lines) if words}
    if lock_holder(directory).state is LockState.HELD:
        return []  # bound in another network namespace, they are not listed here
    return [
        leaf
        for leaf, info in found.items()
        if stat.S_ISSOCK(info.st_mode) and str(directory / leaf) not in listed
    ]


def _group_of(info: os.stat_result) -> str:
    try:
        return grp.getgrgid(info.st_gid).gr_name
    except KeyError:
        return str(info.st_gid)


def check_admin(directory: Path) -> Finding:
    """Check whether a daemon answers, and its status; starts no service."""
    found = stopped_service([directory])
    if found is None:
        return _ask(directory)
    service, state = found
    if not state.failure:
        return ok(f"{service.unit} is stopped; the next request starts it")
    return failed(f"{service.unit} has failed: {state.failure}", service.journal)


def _ask(directory: Path) -> Finding:
    try:
        for _, status in watch_status(directory, bounds=ADMIN_BOUNDS):
            if status.status != "capabilities":
                return _status_finding(status, directory)
    except NoDaemonError as error:
        return warning(str(error), _start_hint(directory))
    except ClientError as error:
        is_untrusted = isinstance(error, UntrustedServerError)
        detail = str(error) if is_untrusted else f"not a daemon: {error}"
        return failed(detail, "" if is_untrusted else "inferd status --watch")
    except OSError:
        return failed(
            f"no status within {ADMIN_BOUNDS.seconds:g} s", _silence_hint(directory)
        )
    return failed("the daemon closed the admin socket", "inferd status --watch")


def _start_hint(directory: Path) -> str:
    """Return the command that starts the daemon of a directory."""
    service = service_of(directory)
    if service is None or service.is_user:
        return "inferd serve"
    return f"sudo systemctl enable --now {service.socket_unit} {service.unit}"


def _silence_hint(directory: Path) -> str:
    """Return what ends a daemon that says nothing, and starts the next one."""
    service, holder = service_of(directory), lock_holder(directory)
    if service is not None:
        return f"if it stays silent: {service.systemctl('restart')}"
    if not holder.pid or holder.is_foreign:
        return "inferd status --watch"
    return f"if it stays silent: kill -KILL {holder.pid}; inferd serve"


def _status_finding(status: AnyStatus, directory: Path) -> Finding:
    text = " ".join(word for word in (status.status, status.phase) if word)
    if text == "ready":
        return ok("the daemon is ready")
    reason = f": {status.reason}" if status.reason else ""
    if status.phase != "breaker_open":
        return warning(f"the daemon is {text}{reason}", "inferd status --watch")
    service = service_of(directory)
    state = unit_state(service) if service is not None else None
    restart = "inferd drain, then: inferd serve"
    if service is not None and state is not None and state.active == "active":
        restart = service.systemctl("restart")
    return failed(f"a worker died again and again{reason}", restart)
