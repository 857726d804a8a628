"""Run filters of system calls as the kernel does, for any processor."""

import struct
from collections.abc import Sequence

LOAD, JUMP_IF_EQUAL, JUMP_IF_ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW = 0x7FFF_0000
ERRNO = 0x0005_0000


def verdict(
    code: bytes, architecture: int, number: int, arguments: Sequence[int] = ()
) -> int:
    """Give what a filter answers to a call; arguments are cut to 64 bits."""
    padded = [*(each % 2**64 for each in arguments), *[0] * 6][:6]
    data = struct.pack("<IIQ6Q", number % 2**32, architecture, 0, *padded)
    instructions = list(struct.iter_unpack("=HBBI", code))
    place, value = 0, 0
    while True:
        kind, yes, no, operand = instructions[place]
        place += 1
        if kind == LOAD:
            [value] = struct.unpack_from("<I", data, operand)
        elif kind == JUMP_IF_EQUAL:
            place += yes if value == operand else no
        elif kind == JUMP_IF_ANY_BIT:
            place += yes if value & operand else no
        else:
            assert kind == RETURN
            return int(operand)
