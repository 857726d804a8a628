"""Run a program that reads files of the system and writes to one directory alone.

``python -m inferd.downloader.confine OPTIONS -- PROGRAM ARGUMENTS``. The program is pip, the
reader of archives or the converter: each works on data of others. Its files, the sizes of
these and its memory are bounded by the kernel, it has no socket unless it is pip, and no way
to leave its process group. Root's becomes a user that owns nothing but the directory, with
one capability: to read. It ends with the process that asked for it. What the kernel lacks
for that is printed on stderr.
"""

import argparse
import os
import resource
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from inferd.sandbox import landlock
from inferd.sandbox.bpf import ArgIn, ArgLacks, SyscallRules
from inferd.sandbox.pdeathsig import die_with_parent
from inferd.sandbox.privileges import (
    CAP_DAC_READ_SEARCH,
    LEAVING,
    UNPRIVILEGED,
    become_nobody,
    drop_capabilities,
    held_capabilities,
    set_no_new_privs,
)
from inferd.sandbox.restrict import restrict_files, restrict_syscalls
from inferd.sandbox.syscalls import syscall_numbers, this_machine
from inferd.terminal import Parser, print_stderr

_READ: Final = landlock.READ_FILE | landlock.READ_DIR | landlock.EXECUTE
_READ_FILE: Final = landlock.READ_FILE | landlock.EXECUTE
_WRITE: Final = (
    (_READ | landlock.WRITE_FILE | landlock.TRUNCATE | landlock.REFER)
    | (landlock.MAKE_REG | landlock.MAKE_DIR | landlock.MAKE_SYM)
    | (landlock.REMOVE_FILE | landlock.REMOVE_DIR)
)
_SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"),
    *("/nix/store", "/gnu/store", "/proc", "/sys/devices/system", "/sys/fs/cgroup"),
)
_ETC: Final = (
    *("resolv.conf", "hosts", "nsswitch.conf", "host.conf", "gai.conf", "services"),
    *("protocols", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "ssl"),
    *("pki", "ca-certificates", "crypto-policies", "pip.conf", "xdg/pip", "passwd"),
    *("group", "os-release", "lsb-release", "debian_version", "mime.types"),
    *(f"python3.{minor}" for minor in range(11, 20)),
)
"""Files below ``/etc`` that Python, pip and the C library read; others may be secrets."""
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")

_REFUSED: Final = (
    *("setsid", "setpgid"),  # to leave the group that is ended as a whole
    *("unshare", "setns", "clone3"),  # namespaces, in which it would be root
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd"),
    *("kill", "tkill", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),  # sockets as well
    *("socketpair", "listen", "accept", "accept4"),
)
"""System calls that no program here needs. The rest is allowed: pip, and the libraries of a
converter, need other calls with each version."""
_SOCKETS: Final = ("socket", "connect", "bind")
"""Calls that pip needs besides."""
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""The last tells the C library which addresses this machine has. It does without the Unix
sockets of name services, and asks the name servers."""
_NAMESPACES: Final = 0x7E02_0000
"""Flags of ``clone`` for namespaces."""


def main() -> None:
    """Restrict this process, and become the program."""
    arguments = _parser().parse_args()
    die_with_parent(arguments.parent)
    for missing in confine(arguments):
        print_stderr(f"note: the sandbox is weaker: {missing}")
    os.environ.update(each.split("=", 1) for each in arguments.environ)
    program: list[str] = arguments.program
    os.execv(program[0], program)  # noqa: S606  # our own arguments


def _parser() -> Parser:
    parser = Parser(prog="python -m inferd.downloader.confine")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--writes", type=Path, required=True)
    parser.add_argument("--reads", type=Path, action="append", default=[])
    parser.add_argument("--file-bytes", type=int, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--environ", action="append", default=[])
    parser.add_argument("--network", action="store_true")
    parser.add_argument("--event-loop", action="store_true")
    parser.add_argument("program", nargs="+")
    return parser


def confine(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Restrict this process irreversibly, and what it starts; return what the kernel lacks."""
    weaker = _leave_root(arguments.writes) if os.geteuid() == 0 else ()
    die_with_parent(arguments.parent)  # another user's process needs it once more
    set_no_new_privs()
    if os.geteuid() == 0:
        drop_capabilities(CAP_DAC_READ_SEARCH)
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, arguments.file_bytes),
        (resource.RLIMIT_AS, arguments.memory_bytes),
    ):
        _lower(kind, limit)
    calls = allowed_calls(
        network=arguments.network, has_event_loop=arguments.event_loop
    )
    refused = landlock.BIND_TCP | (0 if arguments.network else landlock.CONNECT_TCP)
    with ExitStack() as opened:
        allowed = [*_allowed(opened, arguments.reads, arguments.writes)]
        _, missing = restrict_files(
            lambda: landlock.restrict(allowed, refused_tcp=refused)
        )
    return (*weaker, *missing, *restrict_syscalls(calls))


def _leave_root(writes: Path) -> tuple[str, ...]:
    """Become a user that owns nothing but the directory; return why that cannot be.

    The directory is below one that root alone may enter, so that other processes of that
    user do not reach it. This one does by the capability to read.
    """
    needed = LEAVING | CAP_DAC_READ_SEARCH
    if held_capabilities() & needed != needed:
        return ("it stays root, which lacks the capabilities to become another user",)
    try:
        os.chown(writes, UNPRIVILEGED, UNPRIVILEGED, follow_symlinks=False)
    except (
        OSError
    ) as error:  # a namespace without that user, or a network's file system
        return (f"it stays root: {writes} cannot be given away: {error.strerror}",)
    become_nobody(CAP_DAC_READ_SEARCH)
    return ()


def allowed_calls(*, network: bool, has_event_loop: bool = False) -> SyscallRules:
    """List the system calls of this processor that a program may make.

    Args:
        network: whether it may connect to other addresses.
        has_event_loop: whether it may make pairs of sockets, by which those of Python wake
            themselves; nobody else is at the other end.
    """
    machine = this_machine()
    if machine is None:  # there is no filter for it, which is reported
        return {}
    refused = {*_REFUSED} if network else {*_REFUSED, *_SOCKETS}
    refused -= {"socketpair"} if has_event_loop else set()
    names = [name for name in syscall_numbers(machine) if name not in refused]
    rules: SyscallRules = {
        **dict.fromkeys(names, ()),
        "clone": (ArgLacks(0, _NAMESPACES),),
    }
    return (
        {**rules, "socket": (ArgIn(0, tuple(map(int, _FAMILIES))),)}
        if network
        else rules
    )


def _lower(kind: int, limit: int) -> None:
    """Set a limit, unless a lower one holds already."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(kind, (limit, limit))


def _allowed(
    opened: ExitStack, reads: Iterable[Path], writes: Path
) -> Iterator[tuple[int, int]]:
    """Open what may be read and written, and all beneath; yield descriptors with rights."""
    prefixes = {sys.prefix, sys.base_prefix, sys.base_exec_prefix} - {"/"}
    etc = [f"/etc/{name}" for name in _ETC]
    system = (*_SYSTEM, *etc, *prefixes, *filter(None, sys.path))
    for path in (*(Path(each) for each in system), *reads):
        with suppress(OSError):  # not every machine has them all
            yield _opened(opened, path), _READ if path.is_dir() else _READ_FILE
    for device in _DEVICES:
        with suppress(OSError):
            yield (
                _opened(opened, Path(device)),
                landlock.READ_FILE | landlock.WRITE_FILE,
            )
    yield _opened(opened, writes), _WRITE


def _opened(opened: ExitStack, path: Path) -> int:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    opened.callback(os.close, descriptor)
    return descriptor


if __name__ == "__main__":
    main()
