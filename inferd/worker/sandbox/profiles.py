"""What each stage of a process may ask of the kernel: lists of what is allowed.

``SERVING`` is what computing and the one socket take. ``LOADING`` adds what importing and
mapping files take. ``PREPARING`` is for the process beside a worker that forks for each
request, ``WRITING`` for such a fork, ``ACCELERATED`` for a backend whose driver needs
devices. Hot calls come first: kernels before 5.11 walk down a filter at each call.

A call is on a list because it was seen in use there, or because a C library makes it in
the place of one that was seen: older ones, and those of another processor.
"""

import os
import signal
import socket
from typing import Final

from inferd.sandbox.arguments import (
    NO_CODE,
    OWN_CLOCK,
    RECVFROM_IN_BAND,
    RECVMSG_IN_BAND,
    SENT_ON,
)
from inferd.sandbox.bpf import Is, IsNull, Lacks, Rules

THREAD_FLAGS: Final = (0x003D_0F00, 0x007D_0F00)
"""With which C libraries start threads: glibc; musl, which adds one that does nothing."""
FORK_FLAGS: Final = (0x0120_0011, 0x11)
"""With which they fork: glibc; musl."""

_PAST_LANDLOCK: Final = os.O_PATH | 0o20_000_000
"""Of ``open``: descriptors that Landlock gives of anything, and what makes ``O_TMPFILE``
more than ``O_DIRECTORY``. What is opened to be written to is Landlock's to refuse: the
binding of llama.cpp opens ``/dev/null`` so. Both are the same on both processors."""

_PR_SET_PDEATHSIG: Final = 1
_PR_NAMES: Final = (15, 16, 0x5356_4D41)
"""Of ``prctl``: to set and to get the name of a thread, and to name a mapping."""
_ARCH_FEATURES: Final = (0x1021, 0x1022, 0x1023, 0x3001)
"""Of ``arch_prctl``: what the processor has, to use its AMX, what guards its calls."""
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
"""Of ``fcntl``: flags of a descriptor, of a file to get, a copy, seals to get."""


_FUTEX_PRIVATE, _FUTEX_REALTIME = 128, 256
_FUTEXES: Final = tuple(
    kind | shared | clock
    for clock in (0, _FUTEX_REALTIME)
    for shared in (_FUTEX_PRIVATE, 0)
    for kind in (9, 1, 0, 10, 3, 4, 5)
)
"""To wait, to wake, and to have others wait elsewhere. Not what inherits priority: it takes
any thread of the machine for the owner of a lock, and so tells whether it is there."""


def _any_use(names: str) -> Rules:
    return dict.fromkeys(names.split(), ())


def _no_bits(argument: int, bits: int) -> tuple[Lacks]:
    return (Lacks(argument, bits),)


_IN_BAND: Final = {place: _no_bits(place, socket.MSG_OOB) for place in (2, 3)}
"""By the place of the flags among the arguments."""

SERVING: Final[Rules] = {
    # decoding, and the socket to the daemon
    "futex": (Is(1, _FUTEXES),),
    **_any_use("sched_yield"),
    "recvmsg": RECVMSG_IN_BAND,
    "sendto": SENT_ON,
    "clock_gettime": OWN_CLOCK,
    **_any_use("madvise brk munmap mremap"),
    "mprotect": NO_CODE,
    "mmap": NO_CODE,
    **_any_use(
        "read pread64 write times lseek close fstat readv preadv preadv2 writev"
    ),
    # threads, signals, their ends
    **_any_use("rt_sigprocmask rt_sigaction rt_sigreturn sigaltstack restart_syscall"),
    "clone": (Is(0, THREAD_FLAGS),),
    **_any_use("set_robust_list rseq gettid sched_getaffinity exit exit_group"),
    # time, chance, oneself
    **dict.fromkeys(("clock_nanosleep", "clock_getres"), OWN_CLOCK),
    **_any_use("nanosleep gettimeofday time getcpu"),
    **_any_use("getrandom getpid getppid getuid geteuid getgid getegid getrusage"),
    **_any_use("uname sysinfo"),
    "prlimit64": (Is(0, (0,)),),
    "prctl": (Is(0, _PR_NAMES),),
}
"""No file is opened or named, no code made, no socket, no process."""

_READING: Final[Rules] = {
    "openat": _no_bits(2, _PAST_LANDLOCK),
    **_any_use("newfstatat statx stat lstat access faccessat faccessat2 readlink"),
    **_any_use("readlinkat getdents64 getcwd statfs fstatfs fadvise64 readahead"),
    "ioctl": (Is(1, (_TCGETS, _FIONBIO, _FIONCLEX, _FIOCLEX)),),
    "fcntl": (Is(1, _DESCRIPTOR_COMMANDS),),
    **_any_use("mmap mprotect"),
}

LOADING: Final[Rules] = {
    **SERVING,
    **_READING,
    # what libraries make of memory; the last two are how older ones make code
    **_any_use("mlock munlock mincore mbind get_mempolicy memfd_create ftruncate"),
    "arch_prctl": (Is(0, _ARCH_FEATURES),),
    **_any_use("membarrier set_tid_address getsockopt getsockname"),
    # the filter that comes next
    "seccomp": (),
}
"""Files are read, as far as Landlock lets them, and code is mapped."""

WRITING: Final[Rules] = {
    **SERVING,
    "recvfrom": RECVFROM_IN_BAND,
    **_any_use("setitimer"),
}
"""A fork that writes what one request asks for, and may take no longer than it may."""

PREPARING: Final[Rules] = {
    **LOADING,
    **WRITING,
    **_any_use("mmap mprotect fork wait4"),
    "clone": (Is(0, (*THREAD_FLAGS, *FORK_FLAGS)),),
    "tgkill": (Is(2, (signal.SIGABRT,)),),
    "prctl": (Is(0, (*_PR_NAMES, _PR_SET_PDEATHSIG)),),
}
"""What loading takes, and to fork. A fork has another number, and signals itself alone."""

_WAITING: Final = _any_use(
    "poll ppoll select pselect6 epoll_create1 epoll_ctl epoll_wait epoll_pwait "
    "eventfd2 pipe2 dup"
)
_DRIVER_FILES: Final = _any_use(
    "openat mkdirat mkdir unlinkat unlink renameat renameat2 rename ftruncate "
    "fallocate flock fsync fdatasync pwrite64 pwritev pwritev2 linkat link umask "
    "memfd_create copy_file_range"
)
"""Caches of compiled kernels, memory that is shared by its name, devices."""

ACCELERATED: Final[Rules] = {
    **LOADING,
    **_WAITING,
    **_DRIVER_FILES,
    **_any_use("ioctl fcntl mmap mprotect msync mlock2 mlockall munlockall"),
    **_any_use("set_mempolicy move_pages sched_setaffinity sched_getparam"),
    **_any_use("sched_getscheduler sched_get_priority_max sched_get_priority_min"),
    **_any_use("getpriority timerfd_create timerfd_settime timerfd_gettime"),
    **_any_use("eventfd dup2 dup3 pipe pkey_alloc pkey_free pkey_mprotect capget"),
    # what drivers ask of services of the machine, over Unix sockets with connections
    "socket": (
        Is(0, (socket.AF_UNIX,)),
        Is(1, _CONNECTED_TYPES),
    ),
    "sendto": (IsNull(4), *_IN_BAND[3]),
    "recvfrom": _IN_BAND[3],
    **dict.fromkeys(("sendmsg", "recvmsg"), _IN_BAND[2]),
    **_any_use("connect bind listen accept accept4 shutdown"),
    **_any_use("setsockopt getpeername"),
}
"""All that serving and loading take, and what drivers of CUDA, ROCm and Vulkan do."""


def with_signals_to(pid: int, rules: Rules) -> Rules:
    """Add to rules that a process may signal itself, as ``abort`` does.

    Args:
        pid: of the process, which starts no other.
        rules: to add to.
    """
    own = (Is(0, (pid,)),)
    return {**rules, "kill": own, "tgkill": own}
