"""What every worker gives up first: privileges, core files, descriptors beyond its need."""

import ctypes
import resource
from contextlib import suppress
from typing import Final

from inferd.worker.limits import WORKER_OPEN_FILES

PR_SET_NO_NEW_PRIVS: Final = 38

_CAPABILITY_VERSION: Final = 0x2008_0522
_KEPT_CAPABILITIES: Final = 1 << 2
"""Of root's: to read files whatever their modes are. Which ones is Landlock's to say."""


def give_up_privileges() -> None:
    """Gain none by starting programs, leave no core files, open no more than is needed."""
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, WORKER_OPEN_FILES),
    ):
        _, hard = resource.getrlimit(what)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(OSError):  # a filter of system calls around us
            resource.setrlimit(what, (bound, bound))


def drop_capabilities() -> None:
    """Give up what root can do beyond others: with it, memory of others can be read."""
    libc = ctypes.CDLL(None)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; and high halves
    if libc.capget(header, sets) == 0:
        kept = [sets[place] & _KEPT_CAPABILITIES for place in (0, 1)]
        libc.capset(header, (ctypes.c_uint32 * 6)(*kept))
