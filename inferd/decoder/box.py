"""The sandbox of the process that reads lines: one socket, memory, and its end."""

import resource
from functools import partial
from typing import Final

from inferd.decoder.limits import READ_MEMORY_BYTES
from inferd.ipc import Boxed
from inferd.sandbox import landlock
from inferd.sandbox.arguments import NO_CODE, OWN_CLOCK, RECVFROM_IN_BAND, SENT_ON
from inferd.sandbox.box import call_only, keep_to
from inferd.sandbox.bpf import Is, Rules
from inferd.sandbox.calls import numbers, this_machine
from inferd.sandbox.privileges import drop_capabilities, gain_no_privileges

_FUTEX_WAKE: Final = (1, 129)
"""Of ``futex``: to wake who waits, who would be of this process or of any."""

READING: Final[Rules] = {
    # the socket to the daemon
    "recvfrom": RECVFROM_IN_BAND,
    "sendto": SENT_ON,
    # memory; C libraries differ in how they get it
    **dict.fromkeys(("brk", "munmap", "mremap", "madvise"), ()),
    "mmap": NO_CODE,
    "mprotect": NO_CODE,
    # how much there is of it, and of time
    **dict.fromkeys(("pread64", "getrusage"), ()),
    "clock_gettime": OWN_CLOCK,
    "prlimit64": (Is(0, (0,)), Is(1, (resource.RLIMIT_CPU,))),
    # the end: there is one thread, so whoever wakes another one wakes nobody
    "futex": (Is(1, _FUTEX_WAKE),),
    **dict.fromkeys(
        ("close", "rt_sigaction", "rt_sigreturn", "exit", "exit_group"), ()
    ),
}
"""A call is on the list because it was seen in use there, or because a C library makes it
in the place of one that was seen, as in ``inferd.worker.sandbox.profiles``. There is no
file to be opened, no thread, no process, no signal, no descriptor to be had or received."""

_LIMITS: Final = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_NPROC: 0,
    resource.RLIMIT_NOFILE: 0,
    resource.RLIMIT_AS: READ_MEMORY_BYTES,
}
"""What holds where a kernel has no more: the descriptors that are open stay so."""


def enter() -> Boxed:
    """Give up, for good, what reading takes no part of; tell what is missing for that.

    From here on no module can be imported and no file opened.
    """
    if (machine := this_machine()) is not None:
        numbers(machine)  # read from a file, and kept
    gain_no_privileges()
    drop_capabilities()
    version, missing = keep_to(partial(landlock.restrict, ()))
    for what, most in _LIMITS.items():
        resource.setrlimit(what, (most, most))
    refused = call_only(READING)
    return Boxed(landlock=version, seccomp=not refused, missing=(*missing, *refused))
