"""Seccomp profiles: the allowed system calls in each stage of a process.

``SERVING`` allows computing and one socket. ``LOADING`` adds importing and mapping files.
``PREPARING`` is for the process beside a worker that forks for each request, ``RENDERING``
for such a fork, ``ACCELERATED`` for a backend whose driver needs devices, ``REMOTE`` for one that asks another
engine. Frequent calls
come first: kernels before 5.11 walk down a filter at each call.

Each profile includes another, so a call that is added to ``SERVING`` is in all of them:
``LOADING`` and ``RENDERING`` include ``SERVING``, ``PREPARING`` both of these, and
``ACCELERATED`` and ``REMOTE`` include ``LOADING``.

A call is on a list because it was observed, or because a C library makes it in place of one
that was: older libraries, and those of another processor.
"""

import os
import signal
import socket
from typing import Final

from inferd.sandbox.arguments import (
    ALLOWED_CLOCKS,
    NO_EXEC,
    RECVFROM_IN_BAND,
    RECVMSG_IN_BAND,
    SENDTO_CONNECTED,
)
from inferd.sandbox.bpf import ArgIn, ArgLacks, ArgNull, SyscallRules

THREAD_FLAGS: Final = (0x003D_0F00, 0x007D_0F00)
"""Flags of ``clone`` for threads: glibc; musl, which adds one that has no effect."""
FORK_FLAGS: Final = (0x0120_0011, 0x11)
"""Flags of ``clone`` for a fork: glibc; musl."""

_PAST_LANDLOCK: Final = os.O_PATH | 0o20_000_000
"""Flags of ``open`` that Landlock does not control: ``O_PATH``, and the bit of
``O_TMPFILE`` that ``O_DIRECTORY`` lacks. Opening for writing is left to Landlock: the
binding of llama.cpp opens ``/dev/null`` so. Both are the same on both processors."""

_PR_SET_PDEATHSIG: Final = 1
_PR_NAMES: Final = (15, 16, 0x5356_4D41)
"""``prctl``: set and get the name of a thread, and name a mapping."""
_ARCH_FEATURES: Final = (0x1021, 0x1022, 0x1023, 0x3001)
"""``arch_prctl``: query features, request AMX, query control-flow enforcement."""
_TCGETS, _FIONBIO, _FIONCLEX, _FIOCLEX = 0x5401, 0x5421, 0x5450, 0x5451
_F_DUPFD_CLOEXEC: Final = 1030
_F_GET_SEALS: Final = 1034
_CONNECTED_TYPES: Final = tuple(
    kind | blocking | closing
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    for blocking in (0, socket.SOCK_NONBLOCK)
    for closing in (0, socket.SOCK_CLOEXEC)
)
_DESCRIPTOR_COMMANDS: Final = (1, 2, 3, _F_DUPFD_CLOEXEC, _F_GET_SEALS)
"""``fcntl``: get and set descriptor flags, get file flags, duplicate, get seals."""


_FUTEX_PRIVATE, _FUTEX_REALTIME = 128, 256
_FUTEXES: Final = tuple(
    kind | shared | clock
    for clock in (0, _FUTEX_REALTIME)
    for shared in (_FUTEX_PRIVATE, 0)
    for kind in (9, 1, 0, 10, 3, 4, 5)
)
"""Wait, wake and requeue. Not priority inheritance: its lock owner can be any thread of the
machine, so it would reveal whether a thread exists."""


def _any_use(names: str) -> SyscallRules:
    return dict.fromkeys(names.split(), ())


def _no_bits(argument: int, bits: int) -> tuple[ArgLacks]:
    return (ArgLacks(argument, bits),)


_IN_BAND: Final = {index: _no_bits(index, socket.MSG_OOB) for index in (2, 3)}
"""By the index of the flags among the arguments."""

SERVING: Final[SyscallRules] = {
    # decoding, and the socket to the daemon
    "futex": (ArgIn(1, _FUTEXES),),
    **_any_use("sched_yield"),
    "recvmsg": RECVMSG_IN_BAND,
    "sendto": SENDTO_CONNECTED,
    "clock_gettime": ALLOWED_CLOCKS,
    **_any_use("madvise brk munmap mremap"),
    "mprotect": NO_EXEC,
    "mmap": NO_EXEC,
    **_any_use(
        "read pread64 write times lseek close fstat readv preadv preadv2 writev"
    ),
    # threads, signals, exit
    **_any_use("rt_sigprocmask rt_sigaction rt_sigreturn sigaltstack restart_syscall"),
    "clone": (ArgIn(0, THREAD_FLAGS),),
    **_any_use("set_robust_list rseq gettid sched_getaffinity exit exit_group"),
    # time, random numbers, the process itself
    **dict.fromkeys(("clock_nanosleep", "clock_getres"), ALLOWED_CLOCKS),
    **_any_use("nanosleep gettimeofday time getcpu"),
    **_any_use("getrandom getpid getppid getuid geteuid getgid getegid getrusage"),
    **_any_use("uname sysinfo"),
    "prlimit64": (ArgIn(0, (0,)),),
    "prctl": (ArgIn(0, _PR_NAMES),),
}
"""No file is opened or named, no code mapped, no socket or process created."""

_READING: Final[SyscallRules] = {
    "openat": _no_bits(2, _PAST_LANDLOCK),
    **_any_use("newfstatat statx stat lstat access faccessat faccessat2 readlink"),
    **_any_use("readlinkat getdents64 getcwd statfs fstatfs fadvise64 readahead"),
    "ioctl": (ArgIn(1, (_TCGETS, _FIONBIO, _FIONCLEX, _FIOCLEX)),),
    "fcntl": (ArgIn(1, _DESCRIPTOR_COMMANDS),),
    **_any_use("mmap mprotect"),
}

LOADING: Final[SyscallRules] = {
    **SERVING,
    **_READING,
    # memory of libraries; older ones make executable memory with the last two
    **_any_use("mlock munlock mincore mbind get_mempolicy memfd_create ftruncate"),
    "arch_prctl": (ArgIn(0, _ARCH_FEATURES),),
    **_any_use("membarrier set_tid_address getsockopt getsockname"),
    # to install the next filter
    "seccomp": (),
}
"""Files are read, as far as Landlock allows, and code is mapped."""

RENDERING: Final[SyscallRules] = {
    **SERVING,
    "recvfrom": RECVFROM_IN_BAND,
    **_any_use("setitimer"),
}
"""A fork that renders one request, within a time limit."""

PREPARING: Final[SyscallRules] = {
    **LOADING,
    **RENDERING,
    **_any_use("mmap mprotect fork wait4"),
    "clone": (ArgIn(0, (*THREAD_FLAGS, *FORK_FLAGS)),),
    "tgkill": (ArgIn(2, (signal.SIGABRT,)),),
    "prctl": (ArgIn(0, (*_PR_NAMES, _PR_SET_PDEATHSIG)),),
}
"""``LOADING`` and forking. A fork has another process id, and signals only itself."""

_WAITING: Final = _any_use(
    "poll ppoll select pselect6 epoll_create1 epoll_ctl epoll_wait epoll_pwait "
    "eventfd2 pipe2 dup"
)
_DRIVER_FILES: Final = _any_use(
    "openat mkdirat mkdir unlinkat unlink renameat renameat2 rename ftruncate "
    "fallocate flock fsync fdatasync pwrite64 pwritev pwritev2 linkat link umask "
    "memfd_create copy_file_range"
)
"""Caches of compiled kernels, named shared memory, devices."""

ACCELERATED: Final[SyscallRules] = {
    **LOADING,
    **_WAITING,
    **_DRIVER_FILES,
    **_any_use("ioctl fcntl mmap mprotect msync mlock2 mlockall munlockall"),
    **_any_use("set_mempolicy move_pages sched_setaffinity sched_getparam"),
    **_any_use("sched_getscheduler sched_get_priority_max sched_get_priority_min"),
    **_any_use("getpriority timerfd_create timerfd_settime timerfd_gettime"),
    **_any_use("eventfd dup2 dup3 pipe pkey_alloc pkey_free pkey_mprotect capget"),
    # Unix sockets with connections, to services that drivers use
    "socket": (
        ArgIn(0, (socket.AF_UNIX,)),
        ArgIn(1, _CONNECTED_TYPES),
    ),
    "sendto": (ArgNull(4), *_IN_BAND[3]),
    "recvfrom": _IN_BAND[3],
    **dict.fromkeys(("sendmsg", "recvmsg"), _IN_BAND[2]),
    **_any_use("connect bind listen accept accept4 shutdown"),
    **_any_use("setsockopt getpeername"),
}
"""Serving and loading, and the calls of drivers for CUDA, ROCm and Vulkan."""


_FIONREAD: Final = 0x541B
_RESOLVER_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""The last tells the C library which addresses this machine has."""

REMOTE: Final[SyscallRules] = {
    **LOADING,
    **_WAITING,
    "socket": (ArgIn(0, tuple(map(int, (*_RESOLVER_FAMILIES, socket.AF_UNIX)))),),
    **_any_use("socketpair connect bind shutdown getpeername setsockopt"),
    "sendto": _IN_BAND[3],
    "recvfrom": _IN_BAND[3],
    **dict.fromkeys(("sendmsg", "recvmsg"), _IN_BAND[2]),
    "sendmmsg": _IN_BAND[3],
    "ioctl": (ArgIn(1, (_TCGETS, _FIONREAD, _FIONBIO, _FIONCLEX, _FIOCLEX)),),
    "fcntl": (ArgIn(1, (*_DESCRIPTOR_COMMANDS, 4)),),
}
"""Serving and loading, and connections: no process is started, nothing listened at. Landlock
says to which port they may be made; the socket pair wakes the event loop."""


def allow_own_signals(pid: int, rules: SyscallRules) -> SyscallRules:
    """Add to rules that a process may signal itself, as ``abort`` does.

    Args:
        pid: of the process, which starts no other.
        rules: to add to.
    """
    own = (ArgIn(0, (pid,)),)
    return {**rules, "kill": own, "tgkill": own}
