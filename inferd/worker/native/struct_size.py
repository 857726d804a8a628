"""Measure the structs of a native library, to compare them with their ctypes binding.

ctypes trusts any layout: a library of another release than the binding would write past
the end of a struct.
"""

import ctypes
from typing import Final

__all__ = ["written_bytes"]

_PROBE_BYTES: Final = 1024
_PATTERNS: Final = (0xAA, 0x55)


def written_bytes(function: int, *arguments: int) -> int:
    """Measure how far a function writes that returns a struct by value.

    The buffer is filled with a pattern, so the last byte that changed is the end of the
    struct's last field. Only on x86-64 is the address of the result an argument.

    Args:
        function: its address. Its result is larger than two registers, so the caller
            passes the address to write it to.
        arguments: of the function, as C ints.
    """
    types = (ctypes.c_void_p, *(ctypes.c_int for _ in arguments))
    call = ctypes.CFUNCTYPE(None, *types)(function)
    last = 0
    for pattern in _PATTERNS:
        buffer = (ctypes.c_uint8 * _PROBE_BYTES)(*([pattern] * _PROBE_BYTES))
        call(ctypes.addressof(buffer), *arguments)
        changed = [index for index, byte in enumerate(buffer) if byte != pattern]
        last = max(last, changed[-1] + 1 if changed else 0)
    return last
