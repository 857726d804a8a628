"""Landlock: restrict this process irreversibly to the files that it names.

The kernel's interface is three system calls without functions in the C library; their
numbers are the same on all processors. A ruleset must not contain rights that the kernel
does not know, so it is reduced to those of the kernel's version.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from typing import Final

EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIR: Final = 1 << 3
REMOVE_DIR: Final = 1 << 4
REMOVE_FILE: Final = 1 << 5
MAKE_DIR: Final = 1 << 7
MAKE_REG: Final = 1 << 8
MAKE_SYM: Final = 1 << 12
REFER: Final = 1 << 13
TRUNCATE: Final = 1 << 14

_NONE: Final = "Landlock: this kernel has none, or it is turned off at boot"

_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_GET_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_NET_PORT: Final = 2

_FILE_RIGHTS: Final = ((5, 16), (3, 15), (2, 14), (1, 13))
"""Number of file rights, by the first version that has so many."""
_TCP_SINCE: Final = 4
BIND_TCP: Final = 1 << 0
CONNECT_TCP: Final = 1 << 1
_SCOPES_SINCE: Final = 6
_SCOPES: Final = 0b11
"""Abstract Unix sockets and signals: only to processes in the same sandbox."""


def version() -> int:
    """Return the kernel's Landlock ABI version; 0 for none."""
    return max(0, _syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _GET_VERSION))


def unavailable_message() -> str:
    """Describe why Landlock is unavailable."""
    reason = kernel_error()
    return f"{_NONE} ({reason})" if reason else _NONE


def kernel_error() -> str:
    """Return the kernel's error if Landlock is unavailable, else nothing."""
    if version():
        return ""
    return os.strerror(ctypes.get_errno())


def restrict(
    allowed: Iterable[tuple[int, int]],
    *,
    refused_tcp: int = BIND_TCP | CONNECT_TCP,
    ports: Iterable[int] = (),
) -> int:
    """Drop all file rights but these, and TCP; confine signals to the sandbox.

    Applies to the calling thread and to what it starts afterwards.

    Args:
        allowed: descriptors of files and directories, and the rights over them and what is
            beneath; rights that the kernel does not know are left out.
        refused_tcp: what may not be done with TCP.
        ports: to which connections are allowed all the same.

    Returns:
        The kernel's version; 0 if it has none, so that nothing is restricted.

    Raises:
        OSError: the kernel refused.
    """
    abi = version()
    if not abi:
        return 0
    known = (1 << next(n for since, n in _FILE_RIGHTS if abi >= since)) - 1
    rules = struct.pack(
        "=QQQ",
        known,
        refused_tcp if abi >= _TCP_SINCE else 0,
        _SCOPES if abi >= _SCOPES_SINCE else 0,
    )
    ruleset = _checked_syscall(_CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    try:
        for fd, rights in allowed:
            rule = struct.pack("=Qi", rights & known, fd)
            _checked_syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
        for port in ports if abi >= _TCP_SINCE else ():
            rule = struct.pack("=QQ", CONNECT_TCP, port)
            _checked_syscall(_ADD_RULE, ruleset, _NET_PORT, rule, 0)
        _checked_syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return abi


def _checked_syscall(*arguments: object) -> int:
    if (result := _syscall(*arguments)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _syscall(*arguments: object) -> int:
    return int(ctypes.CDLL(None, use_errno=True).syscall(*arguments))
