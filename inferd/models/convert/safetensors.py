"""Read a safetensors file: a length, a JSON header, and the bytes of the tensors."""

import json
from pathlib import Path
from typing import TypedDict

import numpy as np
import numpy.typing as npt

_LENGTH_BYTES = 8
_FLOAT = "F32"


class _Entry(TypedDict):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def read_safetensors(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Read the float32 tensors, by name; skip others."""
    data = path.read_bytes()
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    header: dict[str, _Entry] = json.loads(data[_LENGTH_BYTES:start])
    tensors = {}
    for name, entry in header.items():
        if entry.get("dtype") != _FLOAT:  # position ids, and the file's metadata
            continue
        first, last = entry["data_offsets"]
        values = np.frombuffer(data[start + first : start + last], "<f4")
        tensors[name] = values.reshape(entry["shape"])
    return tensors
