"""Dropping of privileges, which the kernel requires before it accepts a filter."""

import ctypes
import os
from typing import Final

PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_DUMPABLE: Final = 4

UNPRIVILEGED: Final = 65_534
"""User and group that root's processes become which work on data of others: ``nobody``, who
owns nothing."""
CAP_DAC_READ_SEARCH: Final = 1 << 2
"""Lets a process read what root could read; Landlock says what of that is left."""
LEAVING: Final = 1 << 0 | 1 << 6 | 1 << 7 | 1 << 8
"""Capabilities that it takes to give a directory away (``CAP_CHOWN``), and to become another
user and keep capabilities (``CAP_SETGID``, ``CAP_SETUID``, ``CAP_SETPCAP``)."""

_CAPABILITY_VERSION: Final = 0x2008_0522
_CapabilitySets = ctypes.c_uint32 * 6
"""Effective, permitted, inheritable; and their high halves."""
_PR_SET_SECUREBITS: Final = 28
_NO_SETUID_FIXUP: Final = 1 << 2
"""Of those bits: a change of user leaves capabilities as they are, and ``access`` counts them."""
_PR_CAP_AMBIENT: Final = 47
_AMBIENT_RAISE: Final = 2


def set_no_new_privs() -> None:
    """Set ``no_new_privs``: starting a program can gain no privileges."""
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def refuse_inspection() -> None:
    """Have other processes of this user neither trace this one nor read its memory.

    The kernel writes no core file of it either.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def held_capabilities() -> int:
    """Return a bit mask of the capabilities that this process may use, of the first 32."""
    sets = _CapabilitySets()
    return int(sets[1]) if ctypes.CDLL(None).capget(_header(), sets) == 0 else 0


def drop_capabilities(kept: int = 0) -> None:
    """Drop capabilities, with which a process can read others' memory.

    Args:
        kept: bit mask of those to keep, of the first 32.
    """
    libc, sets = ctypes.CDLL(None), _CapabilitySets()
    if libc.capget(_header(), sets) == 0:
        masks = [sets[index] & kept for index in (0, 1)]
        libc.capset(_header(), _CapabilitySets(*masks))


def become_nobody(kept: int = 0) -> None:
    """Leave root for good.

    The parent-death signal is cleared by that.

    Args:
        kept: bit mask of capabilities to keep, of the first 32; what this process becomes or
            starts has them, too.

    Raises:
        OSError: this process may not.
    """
    if kept:
        _prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP)
    os.setgroups([])
    os.setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
    os.setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
    if kept:
        libc = ctypes.CDLL(None, use_errno=True)
        _check(libc.capset(_header(), _CapabilitySets(kept, kept, kept)))
        for number in (each for each in range(32) if kept >> each & 1):
            _prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, number)


def _header() -> "ctypes.Array[ctypes.c_uint32]":
    return (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)


def _prctl(option: int, *words: int) -> None:
    arguments = [ctypes.c_ulong(word) for word in (*words, 0, 0, 0)[:4]]
    _check(ctypes.CDLL(None, use_errno=True).prctl(option, *arguments))


def _check(status: int) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
