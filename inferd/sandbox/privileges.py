"""Dropping of privileges, which the kernel requires before it accepts a filter."""

import ctypes
from typing import Final

PR_SET_NO_NEW_PRIVS: Final = 38

_CAPABILITY_VERSION: Final = 0x2008_0522


def set_no_new_privs() -> None:
    """Set ``no_new_privs``: starting a program can gain no privileges."""
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def drop_capabilities(kept: int = 0) -> None:
    """Drop capabilities, with which a process can read others' memory.

    Args:
        kept: bit mask of those to keep, of the first 32.
    """
    libc = ctypes.CDLL(None)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; and high halves
    if libc.capget(header, sets) == 0:
        masks = [sets[index] & kept for index in (0, 1)]
        libc.capset(header, (ctypes.c_uint32 * 6)(*masks))
