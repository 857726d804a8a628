"""A model of all tokens and one layer: what it writes makes no sense, and is soon written.

The file is another one's: its header, of which one number changes, the first layer, and
what is in no layer.
"""

import re
import struct
from io import BytesIO
from pathlib import Path
from typing import Final

from tests.fakes.gguf_bytes import ARRAY, TEXT, U32, gguf, pair, tensor

SIZES: Final = (1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8)
"""Bytes of a value, by its kind; those of texts and arrays have to be read."""
LATER_LAYER: Final = re.compile(rb"blk\.[1-9]")
LAST_NORM: Final = b"output_norm.weight"
N_LAYERS: Final = b"llama.block_count"


def write_shortened(model: Path, path: Path, *, is_indifferent: bool = False) -> Path:
    """Write the first layer of a model; give the new file's path.

    Args:
        model: to read.
        path: to write to.
        is_indifferent: whether all tokens get the same score, 0, so that biases alone decide.
    """
    content = model.read_bytes()
    file = BytesIO(content)
    _, _, n_tensors, n_pairs = struct.unpack("<4sIQQ", file.read(24))
    begin = file.tell()
    for _ in range(n_pairs):
        _text(file)
        _skip_value(file, *struct.unpack("<I", file.read(4)))
    pairs = content[begin : file.tell()]
    found = [_tensor(file) for _ in range(n_tensors)]
    weights = content[-(-file.tell() // 32) * 32 :]
    ends = [offset for *_, offset in found[1:]] + [len(weights)]
    tensors, data = [], b""
    for (name, shape, kind, offset), end in zip(found, ends, strict=True):
        if not LATER_LAYER.match(name):
            tensors.append(tensor(name, shape, kind, len(data)))
            is_zero = is_indifferent and name == LAST_NORM
            data += bytes(end - offset) if is_zero else weights[offset:end]
    short = gguf(pairs=[_with_one_layer(pairs)], tensors=tensors, data=b"")
    header = short[:16] + struct.pack("<Q", n_pairs) + short[24:]
    path.write_bytes(header + data)
    return path


def _with_one_layer(pairs: bytes) -> bytes:
    key = pair(N_LAYERS, U32, b"")
    begin, end = pairs.split(key)
    return begin + key + struct.pack("<I", 1) + end[4:]


def _text(file: BytesIO) -> bytes:
    [size] = struct.unpack("<Q", file.read(8))
    return file.read(size)


def _skip_value(file: BytesIO, kind: int) -> None:
    if kind == TEXT:
        _text(file)
    elif kind == ARRAY:
        kind, n_items = struct.unpack("<IQ", file.read(12))
        for _ in range(n_items):
            _skip_value(file, kind)
    else:
        file.seek(SIZES[kind], 1)


def _tensor(file: BytesIO) -> tuple[bytes, tuple[int, ...], int, int]:
    name = _text(file)
    [n_dims] = struct.unpack("<I", file.read(4))
    shape = struct.unpack(f"<{n_dims}Q", file.read(8 * n_dims))
    return name, shape, *struct.unpack("<IQ", file.read(12))
