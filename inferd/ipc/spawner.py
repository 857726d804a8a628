"""Messages between the daemon and the process that starts workers with a network.

Each is one packet. An order is the number of a program, with these descriptors: ``ENDS``, of
which the first is the far end of a socket pair on which the answers come, and the key, if
there is one. The first answer is the process id, with a descriptor of the process, or a
negative error number; the second the exit code.
"""

import struct
from typing import Final

ENDS: Final = 3
"""Descriptors of each order: for the answers, the worker's socket, its stderr."""

MAX_ORDER_FDS: Final = ENDS + 1
"""Descriptors of an order at most: the last is that of the key."""

READY: Final = b"ready"
"""What the process sends once it can be given orders, and nobody can trace it."""

_NUMBER: Final = struct.Struct("=i")
MAX_PACKET_BYTES: Final = 16
"""Bytes of one packet at most."""


def encode_number(number: int) -> bytes:
    """Encode the number of a program, a process id, an error or an exit code."""
    return _NUMBER.pack(number)


def decode_number(packet: bytes) -> int | None:
    """Decode a number; ``None`` if it is none, as at the end of a socket."""
    if len(packet) != _NUMBER.size:
        return None
    return int(_NUMBER.unpack(packet)[0])
