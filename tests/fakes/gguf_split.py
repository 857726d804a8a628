"""Split a GGUF file into parts, as llama-gguf-split does."""

import struct
from collections.abc import Sequence
from pathlib import Path

from gguf import GGUFReader, ReaderTensor

from tests.fakes.gguf_bytes import I32, U16, number, tensor

ALIGNMENT = 32
_FIXED = struct.calcsize("<4sIQQ")
"""Bytes before the first key."""


def part_names(stem: str, n_parts: int) -> list[str]:
    """Return the names of the parts of a model."""
    return [f"{stem}-{n:05}-of-{n_parts:05}.gguf" for n in range(1, n_parts + 1)]


def split_keys(part: int, n_parts: int, n_tensors: int) -> list[bytes]:
    """Write the keys of a part, counted from 0, of a model with so many tensors."""
    return [
        number("split.no", U16, part),
        number("split.count", U16, n_parts),
        number("split.tensors.count", I32, n_tensors),
    ]


def split_gguf(
    path: Path, directory: Path, n_parts: int, stem: str = "m"
) -> list[Path]:
    """Split a file into parts with about as many tensors each; return their paths.

    The first has all keys of the whole file, as everywhere, and no alignment of its own.
    """
    reader = GGUFReader(path)
    assert reader.alignment == ALIGNMENT
    tensors = reader.tensors
    own_keys = path.read_bytes()[_FIXED : tensors[0].field.offset]
    n_own_keys = int(reader.fields["GGUF.kv_count"].contents())
    share = -(-len(tensors) // n_parts)
    paths = [directory / name for name in part_names(stem, n_parts)]
    for part, target in enumerate(paths):
        keys = split_keys(part, n_parts, len(tensors))
        n_keys = len(keys)
        if part == 0:
            keys, n_keys = [own_keys, *keys], n_own_keys + len(keys)
        _write(target, n_keys, keys, tensors[part * share : (part + 1) * share])
    return paths


def _write(
    path: Path, n_keys: int, keys: Sequence[bytes], tensors: Sequence[ReaderTensor]
) -> None:
    offset, described = 0, b""
    for each in tensors:
        shape = [int(n) for n in each.shape]
        described += tensor(each.name.encode(), shape, int(each.tensor_type), offset)
        offset += _aligned(each.n_bytes)
    fixed = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), n_keys)
    header = fixed + b"".join(keys) + described
    with path.open("wb") as file:
        file.write(header.ljust(_aligned(len(header)), b"\0"))
        for each in tensors:
            file.write(each.data.tobytes().ljust(_aligned(int(each.n_bytes)), b"\0"))


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT
