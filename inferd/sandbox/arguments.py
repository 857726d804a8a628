"""Arguments of system calls that more than one sandbox allows, as conditions on them."""

import mmap
import socket
from typing import Final

from inferd.sandbox.bpf import Is, IsNull, Lacks

OWN_CLOCK: Final = (Is(0, tuple(range(12))),)
"""A clock of the machine or of the caller. Others, below 0, are the processor time of any
process of the machine, or a device's."""

NO_CODE: Final = (Lacks(2, mmap.PROT_EXEC),)
"""Of ``mmap`` and ``mprotect``: memory that is not run."""

_ALL_BITS: Final = 0xFFFF_FFFF
_SENT: Final = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_RECEIVED: Final = _SENT | int(socket.MSG_WAITALL | socket.MSG_CMSG_CLOEXEC)

SENT_ON: Final = (IsNull(4), Lacks(3, _ALL_BITS & ~_SENT))
"""Of ``sendto``: to whom the socket is connected, and in band: few programs use
``MSG_OOB``, so its code in the kernel is little tried."""

RECVFROM_IN_BAND: Final = (Lacks(3, _ALL_BITS & ~_RECEIVED),)
RECVMSG_IN_BAND: Final = (Lacks(2, _ALL_BITS & ~_RECEIVED),)
"""The same of what receives."""
