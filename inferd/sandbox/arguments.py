"""Conditions on arguments of system calls that more than one sandbox allows."""

import mmap
import socket
from typing import Final

from inferd.sandbox.bpf import ArgIn, ArgLacks, ArgNull

ALLOWED_CLOCKS: Final = (ArgIn(0, tuple(range(12))),)
"""A clock of the machine or of the caller. Negative ids are the CPU time of any process of
the machine, or a device's clock."""

NO_EXEC: Final = (ArgLacks(2, mmap.PROT_EXEC),)
"""For ``mmap`` and ``mprotect``: no executable memory."""

_ALL_BITS: Final = 0xFFFF_FFFF
_SENT: Final = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_RECEIVED: Final = _SENT | int(socket.MSG_WAITALL | socket.MSG_CMSG_CLOEXEC)

SENDTO_CONNECTED: Final = (ArgNull(4), ArgLacks(3, _ALL_BITS & ~_SENT))
"""For ``sendto``: only to the connected peer, and in band: few programs use ``MSG_OOB``, so
its kernel code is little tested."""

RECVFROM_IN_BAND: Final = (ArgLacks(3, _ALL_BITS & ~_RECEIVED),)
RECVMSG_IN_BAND: Final = (ArgLacks(2, _ALL_BITS & ~_RECEIVED),)
"""For ``recvfrom`` and ``recvmsg``: in band, for the same reason."""
