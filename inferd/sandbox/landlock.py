"""Landlock: a process gives up, for good, all files but those that it names.

The kernel's interface is three system calls without functions in the C library; their
numbers are the same on all processors. Since a ruleset may hold nothing that a kernel
does not know, it is cut down to what the kernel says that it has.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from typing import Final

WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIR: Final = 1 << 3

_NONE: Final = "Landlock: this kernel has none, or it is turned off at boot"

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_ASK_VERSION: Final = 1
_PATH_BENEATH: Final = 1

_FILE_RIGHTS: Final = ((5, 16), (3, 15), (2, 14), (1, 13))
"""Rights over files that there are, by the first version that has so many."""
_TCP_SINCE: Final = 4
_TCP_RIGHTS: Final = 0b11
"""To bind, and to connect."""
_SCOPES_SINCE: Final = 6
_SCOPES: Final = 0b11
"""Abstract Unix sockets and signals: no further than to processes in the same box."""


def version() -> int:
    """Ask the kernel which version of Landlock it has; 0 for none."""
    return max(0, _syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION))


def missing() -> str:
    """Say why the kernel has none."""
    reason = refusal()
    return f"{_NONE} ({reason})" if reason else _NONE


def refusal() -> str:
    """Give the kernel's words where it has none, and else nothing."""
    if version():
        return ""
    return os.strerror(ctypes.get_errno())


def restrict(allowed: Iterable[tuple[int, int]]) -> int:
    """Give up all rights over files but these, and TCP; signals stay in the box.

    It holds for the calling thread and what it starts from then on.

    Args:
        allowed: descriptors of files and directories, and the rights over them and what
            is beneath.

    Returns:
        The kernel's version; 0 where it has none, so that nothing is given up.

    Raises:
        OSError: the kernel refused.
    """
    known = version()
    if not known:
        return 0
    rules = struct.pack(
        "=QQQ",
        (1 << next(n for since, n in _FILE_RIGHTS if known >= since)) - 1,
        _TCP_RIGHTS if known >= _TCP_SINCE else 0,
        _SCOPES if known >= _SCOPES_SINCE else 0,
    )
    ruleset = _checked(_CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    try:
        for fd, rights in allowed:
            rule = struct.pack("=Qi", rights, fd)
            _checked(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
        _checked(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return known


def _checked(*arguments: object) -> int:
    if (result := _syscall(*arguments)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _syscall(*arguments: object) -> int:
    return int(ctypes.CDLL(None, use_errno=True).syscall(*arguments))
