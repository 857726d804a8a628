"""Privileges are given up first: without that, the kernel takes no filter."""

import ctypes
from typing import Final

PR_SET_NO_NEW_PRIVS: Final = 38

_CAPABILITY_VERSION: Final = 0x2008_0522


def gain_no_privileges() -> None:
    """Gain none by starting programs."""
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def drop_capabilities(kept: int = 0) -> None:
    """Give up what root can do beyond others: with it, memory of others can be read.

    Args:
        kept: those to keep, a bit for each, of the first 32.
    """
    libc = ctypes.CDLL(None)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; and high halves
    if libc.capget(header, sets) == 0:
        left = [sets[place] & kept for place in (0, 1)]
        libc.capset(header, (ctypes.c_uint32 * 6)(*left))
