"""Give up the network, in a process that needs none beside others that do.

Local sockets stay. What the process starts inherits this, and nobody can take it back.
"""

import socket
from typing import Final

from inferd.sandbox import seccomp
from inferd.sandbox.bpf import ArgIn, SyscallRules
from inferd.sandbox.privileges import set_no_new_privs

_LOCAL: Final[SyscallRules] = dict.fromkeys(
    ("socket", "socketpair"), (ArgIn(0, (int(socket.AF_UNIX),)),)
)
_RINGS: Final = ("io_uring_setup", "io_uring_enter", "io_uring_register")
"""Calls by which sockets are made where no filter sees it (since Linux 5.19)."""


def give_up_network() -> str:
    """Refuse this process, and all that it starts, sockets that are not local.

    Sockets that are open stay open.

    Returns:
        Why that cannot be; empty if it is done.
    """
    set_no_new_privs()
    try:
        seccomp.restrict_some(_LOCAL, _RINGS)
    except seccomp.NoFilterError as error:
        return f"seccomp: {error}"
    return ""


def has_network() -> bool:
    """Tell whether this process may make sockets that are not local."""
    try:
        socket.socket(socket.AF_INET).close()
    except OSError:
        return False
    return True
