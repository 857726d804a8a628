"""The sandboxes of the process that forks decoders, and of a decoder."""

import os
import resource
import signal
from collections.abc import Mapping
from functools import partial
from typing import Final

from inferd.limits.media_decoder import MEDIA_MEMORY_BYTES
from inferd.media_decoder.messages import DecodeMedium
from inferd.sandbox import landlock
from inferd.sandbox.arguments import ALLOWED_CLOCKS, NO_EXEC, RECVMSG_IN_BAND
from inferd.sandbox.bpf import ArgIn, ArgLacks, SyscallRules
from inferd.sandbox.pdeathsig import PR_SET_PDEATHSIG, die_with_parent
from inferd.sandbox.privileges import (
    become_nobody,
    drop_capabilities,
    set_no_new_privs,
)
from inferd.sandbox.restrict import restrict_files, restrict_syscalls
from inferd.sandbox.syscalls import syscall_numbers, this_machine

_FUTEX_WAKE: Final = (1, 129)
"""``FUTEX_WAKE`` with and without ``FUTEX_PRIVATE_FLAG``: a decoder has one thread."""
_FORK_FLAGS: Final = (0x0120_0011, 0x11)
"""Flags of ``clone`` for a fork: glibc; musl."""
_ALL_BITS: Final = 0xFFFF_FFFF


def _any_use(names: str) -> SyscallRules:
    return dict.fromkeys(names.split(), ())


DECODING: Final[SyscallRules] = {
    # the file, what is decoded, the report: all of them are open
    **_any_use("read write lseek pread64 close"),
    # memory; C libraries differ in how they allocate it
    **_any_use("brk munmap mremap madvise"),
    "mmap": NO_EXEC,
    "mprotect": NO_EXEC,
    # what libraries ask for: time, processors, random numbers
    "clock_gettime": ALLOWED_CLOCKS,
    **_any_use("sched_getaffinity getrandom getpid gettid"),
    # exit
    "futex": (ArgIn(1, _FUTEX_WAKE),),
    **_any_use("rt_sigaction rt_sigprocmask rt_sigreturn exit exit_group"),
}
"""None opens or names a file, starts a thread or process, sends a signal, or creates, receives
or passes on a descriptor."""

FORKING: Final[SyscallRules] = {
    **DECODING,
    # the socket to the bridge
    "recvmsg": RECVMSG_IN_BAND,
    "sendmsg": (ArgLacks(2, _ALL_BITS),),
    **_any_use("poll ppoll fstat"),
    # forking, and reaping
    "clone": (ArgIn(0, _FORK_FLAGS),),
    **_any_use("fork wait4 pidfd_open set_robust_list rseq getppid"),
    "prctl": (ArgIn(0, (PR_SET_PDEATHSIG,)),),
    # to confine a decoder further
    "prlimit64": (ArgIn(0, (0,)),),
    **_any_use("seccomp"),
}
"""It reads no caller's file, and has no file or network either."""

_FORKING_LIMITS: Final = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 2**40}


def enter_forking(parent_pid: int) -> tuple[str, ...]:
    """Restrict this process irreversibly to forking decoders; return what the kernel lacks.

    Afterwards no module can be imported and no file opened.

    Args:
        parent_pid: of the bridge, with which it ends.
    """
    if (machine := this_machine()) is not None:
        syscall_numbers(machine)  # read from a file, and cached
    if os.geteuid() == 0:
        become_nobody()
        die_with_parent(parent_pid)  # another user's process needs it once more
    set_no_new_privs()
    drop_capabilities()
    _, missing = restrict_files(partial(landlock.restrict, ()))
    _limit(_FORKING_LIMITS)
    return (*missing, *restrict_syscalls(FORKING))


def enter_decoding(task: DecodeMedium) -> None:
    """Restrict a fork further, irreversibly, to decoding one file.

    What the kernel lacks for that has been reported before the fork.
    """
    for number in (signal.SIGXCPU, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores the second
    _limit(
        {
            resource.RLIMIT_FSIZE: task.max_bytes,
            resource.RLIMIT_NPROC: 0,
            resource.RLIMIT_NOFILE: 0,
            resource.RLIMIT_AS: MEDIA_MEMORY_BYTES,
            resource.RLIMIT_CPU: task.max_cpu_s,
        }
    )
    restrict_syscalls(DECODING)


def _limit(limits: Mapping[int, int]) -> None:
    """Set limits that also hold on kernels without Landlock or seccomp; lower ones stay."""
    for kind, limit in limits.items():
        _, hard = resource.getrlimit(kind)
        bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (bound, bound))
