"""Seccomp: a process gives up, for good, system calls that it has no use for.

A list of what is refused, not of what is allowed: a C library's next version may use a
call that nobody thought of. What is refused answers ``EPERM``.
"""

import ctypes
import errno
import platform
import struct
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

_SET_MODE_FILTER: Final = 1
_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2
_SPEC_ALLOW: Final = 1 << 2
"""Leave the processor's speculation as it is: kernels before 5.16 turn it off with a
filter, and native code becomes slower."""

_LOAD: Final = 0x20
_JUMP_IF_EQUAL: Final = 0x15
_JUMP_IF_AT_LEAST: Final = 0x35
_JUMP_IF_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF_0000
_REFUSE: Final = 0x0005_0000 | errno.EPERM
_PRETEND: Final = 0x0005_0000 | errno.ENOSYS
_NUMBER_AT: Final = 0
_ARCHITECTURE_AT: Final = 4
_FIRST_AT: Final = 16
"""The first argument's lower half: the kernel looks at no more of a process's number."""
_X32: Final = 0x4000_0000
"""From here on, x86-64 has the same calls once more, for pointers of 32 bits."""

_REFUSED: Final = {
    # new sockets, and the ring that can make them without the call
    "socket": (41, 198),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "process_madvise": (440, 440),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    # leaving the group that the daemon kills
    "setpgid": (109, 154),
    "setsid": (112, 157),
    # the kernel's own machinery
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    # what files and processes there are to see
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
}
"""Numbers of calls on x86-64 and on 64-bit ARM."""

_PRLIMIT: Final = (302, 261)
"""With a process of 0 it sets one's own limits, which the C library does by no other call;
with another it could end the daemon, by a second of processor time."""

_CHILDREN: Final = ((57, 58), ())
"""Calls that start a process and nothing else: ``fork``, ``vfork``."""
_CLONE: Final = (56, 220)
_CLONE3: Final = (435, 435)
"""It has its flags in memory, where no filter sees them; without it C libraries take the
older call, for threads, too."""
_CLONE_THREAD: Final = 0x0001_0000
_PRCTL: Final = (157, 167)
_PR_SET_PDEATHSIG: Final = 1


class _Machine(NamedTuple):
    column: int
    architecture: int
    """As the kernel's audit numbers it."""
    seccomp: int
    """The number of the call itself."""


_MACHINES: Final = {
    "x86_64": _Machine(0, 0xC000_003E, 317),
    "aarch64": _Machine(1, 0xC000_00B7, 277),
}


def restrict() -> bool:
    """Give up those calls, and all of other architectures.

    It holds for the calling thread and what it starts from then on, and takes that the
    process can gain no new privileges.

    Returns:
        Whether they are given up: kernel and processor have to be known.
    """
    return _install(program)


def refuse_children() -> bool:
    """Give up to start processes, and to outlive the one that started this; not threads.

    As ``restrict``, which has to come first.
    """
    return _install(childless)


def _install(write: Callable[[int, int], bytes]) -> bool:
    machine = _MACHINES.get(platform.machine())
    if machine is None or sys.maxsize <= 2**32:
        return False
    code = write(machine.column, machine.architecture)
    kept = ctypes.create_string_buffer(code)
    told = struct.pack("@HP", len(code) // 8, ctypes.addressof(kept))
    libc = ctypes.CDLL(None)
    if libc.syscall(machine.seccomp, _SET_MODE_FILTER, _SPEC_ALLOW, told) == 0:
        return True
    return int(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, told)) == 0  # the older way


def program(column: int, architecture: int) -> bytes:
    """Write the filter as the kernel reads it: 8 bytes an instruction."""
    numbers = [numbers[column] for numbers in _REFUSED.values()]
    tests = [
        *((_JUMP_IF_AT_LEAST, _X32) for _ in range(column == 0)),
        *((_JUMP_IF_EQUAL, number) for number in numbers),
    ]
    n_tests = len(tests)
    return b"".join(
        [
            _instruction(_LOAD, _ARCHITECTURE_AT),
            _instruction(_JUMP_IF_EQUAL, architecture, no=n_tests + 5),
            _instruction(_LOAD, _NUMBER_AT),
            *(
                _instruction(code, value, yes=n_tests + 3 - place)
                for place, (code, value) in enumerate(tests)
            ),
            _instruction(_JUMP_IF_EQUAL, _PRLIMIT[column], no=2),
            _instruction(_LOAD, _FIRST_AT),
            _instruction(_JUMP_IF_EQUAL, 0, no=1),
            _instruction(_RETURN, _ALLOW),
            _instruction(_RETURN, _REFUSE),
        ]
    )


def childless(column: int, architecture: int) -> bytes:
    """Write the second filter: of ``clone`` threads are left, of ``prctl`` all but one."""
    children = _CHILDREN[column]
    n_children = len(children)
    return b"".join(
        [
            _instruction(_LOAD, _ARCHITECTURE_AT),
            _instruction(_JUMP_IF_EQUAL, architecture, no=n_children + 9),
            _instruction(_LOAD, _NUMBER_AT),
            *(
                _instruction(_JUMP_IF_EQUAL, number, yes=n_children + 7 - place)
                for place, number in enumerate(children)
            ),
            _instruction(_JUMP_IF_EQUAL, _CLONE3[column], yes=8),
            _instruction(_JUMP_IF_EQUAL, _PRCTL[column], yes=3),
            _instruction(_JUMP_IF_EQUAL, _CLONE[column], no=4),
            _instruction(_LOAD, _FIRST_AT),
            _instruction(_JUMP_IF_ANY_BIT, _CLONE_THREAD, yes=2, no=3),
            _instruction(_LOAD, _FIRST_AT),
            _instruction(_JUMP_IF_EQUAL, _PR_SET_PDEATHSIG, yes=1),
            _instruction(_RETURN, _ALLOW),
            _instruction(_RETURN, _REFUSE),
            _instruction(_RETURN, _PRETEND),
        ]
    )


def _instruction(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Write one instruction; jumps count the instructions that are left out."""
    return struct.pack("=HBBI", code, yes, no, value)
