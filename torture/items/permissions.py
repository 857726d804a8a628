"""R15: who may connect where: the operator, a member of the group, others."""

import ctypes
import errno
import grp
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.daemon.harness import mock
from torture.outcome import Context, SkippedError
from torture.victim import Victim, running

KEY: Final = "R15"
NAME: Final = "Who may connect to which socket"

MEMBER: Final = 54_321
OTHER: Final = 54_322
"""Users that no account has to have."""
CLONE_NEWUSER: Final = 0x10000000
PR_SET_DUMPABLE: Final = 4
LEAVES: Final = (
    *("infer.sock", "infer.v2.sock", "infer.embed.sock", "infer.rerank.sock"),
    "admin.sock",
)
OPEN_TO: Final = {"root": set(LEAVES), "member": {*LEAVES[:-1]}}
"""The sockets that each may use; nobody else may use any."""


def run(context: Context) -> None:
    """Try each socket as each user."""
    if os.geteuid() != 0:
        raise SkippedError("needs root, to be others")
    group = next(each for each in grp.getgrall() if each.gr_gid != 0)
    with TemporaryDirectory(prefix="open-") as place:
        Path(place).chmod(0o755)  # others have to get as far as the sockets
        listen = {"directory": f"{place}/run", "group": group.gr_name}
        daemon = Victim({"backend": [mock()], "listen": listen})
        with passable(Path(place).parent), running(daemon):
            _try_all(context, daemon.directory, group.gr_gid)


@contextmanager
def passable(path: Path) -> Iterator[None]:
    """Let others through a directory while inside."""
    mode = path.stat().st_mode
    path.chmod(mode | 0o011)
    try:
        yield
    finally:
        path.chmod(mode)


def _try_all(context: Context, directory: Path, group_id: int) -> None:
    become: dict[str, Callable[[], None]] = {
        "root": lambda: None,
        "member": lambda: _become(MEMBER, group_id),
        "other": lambda: _become(OTHER, OTHER),
        "root of a namespace": lambda: _become_fake_root(OTHER),
    }
    for who, change in become.items():
        for leaf in LEAVES:
            found = _try_as(change, directory / leaf)
            wanted = 0 if leaf in OPEN_TO.get(who, set()) else errno.EACCES
            if found == errno.ENOSYS:
                context.notes.append(f"{who}: skipped, no user namespaces here")
                break
            word = errno.errorcode.get(found, "connected")
            context.require(found == wanted, f"{who} at {leaf}: {word}")
            context.counts["tries"] = context.counts.get("tries", 0) + 1


def _try_as(change: Callable[[], None], path: Path) -> int:
    """Connect in a process that has become somebody else; give the error, 0 for none."""
    child = os.fork()
    if child == 0:
        code = errno.EIO
        with suppress(BaseException):
            code = _try(change, path)
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _try(change: Callable[[], None], path: Path) -> int:
    try:
        change()
    except OSError:
        return errno.ENOSYS
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(path))


def _become(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def _become_fake_root(uid: int) -> None:
    """Be root in a namespace of one's own, and nobody outside of it."""
    _become(uid, uid)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    if libc.unshare(CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
