"""The sandbox of downloaders: a network, and files of the system to read."""

import os
import resource
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from inferd.limits.models import PULL_MEMORY_BYTES
from inferd.sandbox import landlock
from inferd.sandbox.arguments import ALLOWED_CLOCKS, NO_EXEC
from inferd.sandbox.bpf import ArgIn, ArgLacks, SyscallRules
from inferd.sandbox.landlock import READ_DIR, READ_FILE
from inferd.sandbox.pdeathsig import die_with_parent
from inferd.sandbox.privileges import (
    become_nobody,
    drop_capabilities,
    set_no_new_privs,
)
from inferd.sandbox.restrict import restrict_files, restrict_syscalls
from inferd.sandbox.syscalls import syscall_numbers, this_machine

_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | 0o20_000_000
_FIONREAD, _FIONBIO, _FIONCLEX, _FIOCLEX, _TCGETS = (
    0x541B,
    0x5421,
    0x5450,
    0x5451,
    0x5401,
)
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""The last tells the C library which addresses this machine has."""
_OUT_OF_BAND: Final = int(socket.MSG_OOB)
_FUTEX_PRIVATE, _FUTEX_REALTIME = 128, 256
_FUTEXES: Final = tuple(
    kind | private | clock
    for kind in (0, 1, 3, 4, 9, 10)
    for private in (_FUTEX_PRIVATE, 0)
    for clock in (0, _FUTEX_REALTIME)
)


def _any_use(names: str) -> SyscallRules:
    return dict.fromkeys(names.split(), ())


DOWNLOADING: Final[SyscallRules] = {
    # connections
    **_any_use("read write recvfrom readv writev"),
    "recvmsg": (ArgLacks(2, _OUT_OF_BAND),),
    "sendto": (ArgLacks(3, _OUT_OF_BAND),),
    "sendmsg": (ArgLacks(2, _OUT_OF_BAND),),
    "sendmmsg": (ArgLacks(3, _OUT_OF_BAND),),
    "socket": (ArgIn(0, tuple(map(int, _FAMILIES))),),
    **_any_use("connect bind shutdown getsockopt setsockopt getsockname getpeername"),
    **_any_use("poll ppoll select pselect6 close"),
    # time, memory, random numbers
    "clock_gettime": ALLOWED_CLOCKS,
    "futex": (ArgIn(1, _FUTEXES),),
    **_any_use("brk munmap mremap madvise mmap getrandom"),
    "mprotect": NO_EXEC,
    **dict.fromkeys(("clock_nanosleep", "clock_getres"), ALLOWED_CLOCKS),
    **_any_use("nanosleep gettimeofday time getcpu times sched_yield"),
    # files to read, as far as Landlock allows
    "openat": (ArgLacks(2, _WRITING),),
    **_any_use("newfstatat fstat statx stat lstat access faccessat faccessat2 lseek"),
    **_any_use(
        "readlink readlinkat getdents64 getcwd statfs fstatfs pread64 fadvise64"
    ),
    "ioctl": (ArgIn(1, (_FIONREAD, _FIONBIO, _FIONCLEX, _FIOCLEX, _TCGETS)),),
    "fcntl": (ArgIn(1, (1, 2, 3, 4)),),
    # the process itself
    **_any_use("rt_sigprocmask rt_sigaction rt_sigreturn sigaltstack restart_syscall"),
    **_any_use("getpid getppid gettid getuid geteuid getgid getegid getrusage"),
    **_any_use("uname sysinfo sched_getaffinity rseq exit exit_group"),
    "prlimit64": (ArgIn(0, (0,)),),
}
"""No file is written, no process or thread started, no signal sent, and no Unix socket made."""

_LIMITS: Final = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_NPROC: 0,
    resource.RLIMIT_AS: PULL_MEMORY_BYTES,
}
"""Limits that also hold on kernels without Landlock or seccomp."""

_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
_STORES: Final = ("/nix/store", "/gnu/store")
_NETWORK_FILES: Final = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf"),
    *("/etc/gai.conf", "/etc/services", "/etc/protocols", "/etc/ld.so.cache"),
    *("/etc/localtime", "/usr/share/zoneinfo", "/etc/ssl", "/etc/pki", "/dev/urandom"),
)
"""What the C library reads to find hosts, and where certificates are."""


def enter_sandbox(parent_pid: int) -> tuple[str, ...]:
    """Restrict this process irreversibly to a network; return what the kernel lacks.

    Args:
        parent_pid: of the command, with which it ends.
    """
    if (machine := this_machine()) is not None:
        syscall_numbers(machine)  # read from a file, and cached
    with ExitStack() as opened:
        allowed = [*_opened_paths(opened)]
        if os.geteuid() == 0:
            become_nobody()
        die_with_parent(parent_pid)  # another user's process needs it once more
        set_no_new_privs()
        drop_capabilities()
        _, missing = restrict_files(
            lambda: landlock.restrict(allowed, refused_tcp=landlock.BIND_TCP)
        )
    for kind, limit in _LIMITS.items():
        resource.setrlimit(kind, (limit, limit))
    return (*missing, *restrict_syscalls(DOWNLOADING))


def _opened_paths(opened: ExitStack) -> Iterator[tuple[int, int]]:
    """Open the paths that may be read, and all beneath; yield descriptors with rights."""
    for path in _paths():
        with suppress(OSError):  # not every machine has them all
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            opened.callback(os.close, fd)
            yield fd, READ_FILE | READ_DIR if Path(path).is_dir() else READ_FILE


def _paths() -> Iterator[str]:
    for prefix in {sys.prefix, sys.base_prefix, sys.base_exec_prefix}:
        yield f"{prefix}/lib"
    stated = ssl.get_default_verify_paths()
    certificates = (stated.cafile, stated.capath)
    for path in (*_LIBRARIES, *_STORES, *_NETWORK_FILES, *certificates, *sys.path):
        if path:
            yield path
