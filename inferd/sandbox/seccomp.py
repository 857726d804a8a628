"""Seccomp: a process gives up, for good, all system calls but those of a list.

What is refused fails with ``EPERM`` and harms nothing else: no call kills. A filter that
is installed later holds beside the earlier ones, so it can only take away.
"""

import ctypes
import os
import struct
from typing import Final

from inferd.sandbox import bpf
from inferd.sandbox.calls import numbers, this_machine

PRETENDED: Final = ("clone3",)
"""Its flags lie in memory, where no filter sees them. C libraries start threads by
``clone`` only where they hear ``ENOSYS``: with ``EPERM`` they start none. Every other call
fails with ``EPERM``."""

_SET_MODE_FILTER: Final = 1
_ALL_THREADS: Final = 1 << 0
_SPEC_ALLOW: Final = 1 << 2
"""Leave the processor's speculation as it is: kernels before 5.16 turn it off with a
filter, and native code becomes slower. Those before 4.17 do not know the flag."""
_INSTRUCTION_BYTES: Final = 8


class NoFilterError(Exception):
    """The process cannot give up system calls; the text says why."""


def restrict(rules: bpf.Rules) -> None:
    """Give up all calls but these, and all of other architectures, on all threads.

    It takes that the process can gain no new privileges.

    Raises:
        NoFilterError: nothing is given up.
    """
    machine = this_machine()
    if machine is None:
        raise NoFilterError("no list of system calls for this processor")
    known = numbers(machine)
    code = bpf.write(machine.architecture, known, rules, PRETENDED)
    kept = ctypes.create_string_buffer(code)
    told = struct.pack("@HP", len(code) // _INSTRUCTION_BYTES, ctypes.addressof(kept))
    libc = ctypes.CDLL(None, use_errno=True)
    for flags in (_ALL_THREADS | _SPEC_ALLOW, _ALL_THREADS):
        answer = libc.syscall(known["seccomp"], _SET_MODE_FILTER, flags, told)
        if answer == 0:
            return
        if answer > 0:
            raise NoFilterError(f"thread {answer} has a filter of its own")
    raise NoFilterError(os.strerror(ctypes.get_errno()))
