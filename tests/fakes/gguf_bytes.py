"""GGUF files byte by byte, sound or not."""

import struct
from collections.abc import Sequence

U8, U16, U32, TEXT, ARRAY = 0, 2, 4, 8, 9
I32, F32_VALUE, BOOL, U64 = 5, 6, 7, 10
F32, Q8_0 = 0, 8


def text(value: bytes) -> bytes:
    """Write a text behind its length."""
    return struct.pack("<Q", len(value)) + value


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    """Write a key and its value."""
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, n_items: int, items: bytes) -> bytes:
    """Write an array."""
    return struct.pack("<IQ", kind, n_items) + items


def tensor(
    name: bytes, shape: Sequence[int], kind: int = F32, offset: int = 0
) -> bytes:
    """Write what a tensor is."""
    return (
        text(name)
        + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        + struct.pack("<IQ", kind, offset)
    )


def gguf(
    *,
    pairs: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    alignment: int = 32,
) -> bytes:
    """Write a file: its header, and the weights where they belong."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    header += b"".join([*pairs, *tensors])
    return header + bytes(-len(header) % alignment) + data


def sound() -> bytes:
    """Write a file with a bit of all that there is."""
    words = [text(b"word %d" % n) for n in range(40)]
    return gguf(
        pairs=[
            pair(b"general.architecture", TEXT, text(b"llama")),
            pair(b"general.alignment", U32, struct.pack("<I", 64)),
            pair(b"flags", ARRAY, array(U8, 3, b"\0\1\2")),
            pair(b"words", ARRAY, array(TEXT, len(words), b"".join(words))),
            pair(b"split.count", U16, struct.pack("<H", 0)),
        ],
        tensors=[
            tensor(b"a", [5]),
            tensor(b"b", [32, 2], Q8_0, 64),
        ],
        data=bytes(64 + 68),
        alignment=64,
    )


NUMBERS = {U8: "B", U16: "H", U32: "I", I32: "i", F32_VALUE: "f", BOOL: "?", U64: "Q"}
"""How a number is packed, by its type."""


def number(key: str, kind: int, value: float) -> bytes:
    """Write a key and a number."""
    return pair(key.encode(), kind, struct.pack(f"<{NUMBERS[kind]}", value))


def numbers(key: str, kind: int, values: Sequence[float]) -> bytes:
    """Write a key and an array of numbers."""
    packed = struct.pack(f"<{len(values)}{NUMBERS[kind]}", *values)
    return pair(key.encode(), ARRAY, array(kind, len(values), packed))


def with_number(content: bytes, key: str, value: float) -> bytes:
    """Put another number in the place of one that a whole file has."""
    name = text(key.encode())
    place = content.index(name) + len(name)
    (kind,) = struct.unpack_from("<I", content, place)
    changed = bytearray(content)
    struct.pack_into(f"<{NUMBERS[kind]}", changed, place + 4, value)
    return bytes(changed)
