"""The sandbox of line decoder processes: one socket, memory, and exit."""

import resource
from functools import partial
from typing import Final

from inferd.ipc.worker import SandboxReport
from inferd.limits.line_decoder import DECODE_MEMORY_BYTES
from inferd.sandbox import landlock
from inferd.sandbox.arguments import (
    ALLOWED_CLOCKS,
    NO_EXEC,
    RECVFROM_IN_BAND,
    SENDTO_CONNECTED,
)
from inferd.sandbox.bpf import ArgIn, SyscallRules
from inferd.sandbox.privileges import drop_capabilities, set_no_new_privs
from inferd.sandbox.restrict import restrict_files, restrict_syscalls
from inferd.sandbox.syscalls import syscall_numbers, this_machine

_FUTEX_WAKE: Final = (1, 129)
"""``FUTEX_WAKE`` with and without ``FUTEX_PRIVATE_FLAG``."""

DECODING: Final[SyscallRules] = {
    # the socket to the daemon
    "recvfrom": RECVFROM_IN_BAND,
    "sendto": SENDTO_CONNECTED,
    # memory; C libraries differ in how they allocate it
    **dict.fromkeys(("brk", "munmap", "mremap", "madvise"), ()),
    "mmap": NO_EXEC,
    "mprotect": NO_EXEC,
    # to measure memory and CPU time
    **dict.fromkeys(("pread64", "getrusage"), ()),
    "clock_gettime": ALLOWED_CLOCKS,
    "prlimit64": (ArgIn(0, (0,)), ArgIn(1, (resource.RLIMIT_CPU,))),
    # exit: there is one thread, so a futex wake wakes none
    "futex": (ArgIn(1, _FUTEX_WAKE),),
    **dict.fromkeys(
        ("close", "rt_sigaction", "rt_sigreturn", "exit", "exit_group"), ()
    ),
}
"""A call is on the list because it was observed, or because a C library makes it in place
of one that was, as in ``inferd.worker.sandbox.profiles``. None opens a file, starts a
thread or process, sends a signal, or creates or receives a descriptor."""

_LIMITS: Final = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_NPROC: 0,
    resource.RLIMIT_NOFILE: 0,
    resource.RLIMIT_AS: DECODE_MEMORY_BYTES,
}
"""Limits that also hold on kernels without Landlock or seccomp: open descriptors stay
open."""


def enter_sandbox() -> SandboxReport:
    """Restrict this process irreversibly to decoding; report what the kernel lacks.

    Afterwards no module can be imported and no file opened.
    """
    if (machine := this_machine()) is not None:
        syscall_numbers(machine)  # read from a file, and cached
    set_no_new_privs()
    drop_capabilities()
    version, missing = restrict_files(partial(landlock.restrict, ()))
    for kind, limit in _LIMITS.items():
        resource.setrlimit(kind, (limit, limit))
    refused = restrict_syscalls(DECODING)
    return SandboxReport(
        landlock=version, seccomp=not refused, missing=(*missing, *refused)
    )
