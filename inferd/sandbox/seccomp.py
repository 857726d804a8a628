"""Seccomp: restrict this process irreversibly to a list of system calls.

Other calls fail with ``EPERM`` and have no effect: none kills the process. A filter that is
installed later applies in addition to the earlier ones, so it can only restrict.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from typing import Final

from inferd.sandbox import bpf
from inferd.sandbox.syscalls import Machine, syscall_numbers, this_machine

ENOSYS_CALLS: Final = ("clone3",)
"""``clone3`` has its flags in memory, where no filter sees them. C libraries fall back to
``clone`` for threads only on ``ENOSYS``: with ``EPERM`` they start none. Every other call
fails with ``EPERM``."""

_SET_MODE_FILTER: Final = 1
_ALL_THREADS: Final = 1 << 0
_SPEC_ALLOW: Final = 1 << 2
"""Leave speculative execution as it is: kernels before 5.16 restrict it with a filter, and
native code becomes slower. Those before 4.17 do not know the flag."""
_INSTRUCTION_BYTES: Final = 8


class NoFilterError(Exception):
    """The filter cannot be installed; the text gives the reason."""


def restrict(rules: bpf.SyscallRules) -> None:
    """Restrict all threads to these calls, and to this architecture.

    Requires ``no_new_privs``.

    Raises:
        NoFilterError: nothing is restricted.
    """
    machine, numbers = _calls()
    _install(bpf.build_filter(machine.architecture, numbers, rules, ENOSYS_CALLS))


def restrict_some(rules: bpf.SyscallRules, absent: Iterable[str]) -> None:
    """Restrict some calls of all threads, and leave the others of this architecture.

    Requires ``no_new_privs``.

    Args:
        rules: the uses of a call that are left.
        absent: calls that fail with ``ENOSYS``.

    Raises:
        NoFilterError: nothing is restricted.
    """
    machine, numbers = _calls()
    _install(
        bpf.build_filter(
            machine.architecture, numbers, rules, absent, allows_others=True
        )
    )


def _calls() -> tuple[Machine, dict[str, int]]:
    machine = this_machine()
    if machine is None:
        raise NoFilterError("no list of system calls for this processor")
    return machine, syscall_numbers(machine)


def _install(code: bytes) -> None:
    """Install a filter in all threads."""
    _, numbers = _calls()
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack(
        "@HP", len(code) // _INSTRUCTION_BYTES, ctypes.addressof(buffer)
    )
    libc = ctypes.CDLL(None, use_errno=True)
    for flags in (_ALL_THREADS | _SPEC_ALLOW, _ALL_THREADS):
        result = libc.syscall(numbers["seccomp"], _SET_MODE_FILTER, flags, program)
        if result == 0:
            return
        if result > 0:
            raise NoFilterError(f"thread {result} has a filter of its own")
    raise NoFilterError(os.strerror(ctypes.get_errno()))
