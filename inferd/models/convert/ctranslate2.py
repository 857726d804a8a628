"""Read a model of CTranslate2: a header, and tensors by name, one after another."""

import struct
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

_VERSION: Final = 6
_TYPES: Final = {0: "<f4", 1: "i1", 2: "<i2", 4: "<f2"}


class _Reader:
    """Walks the file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, kind: str) -> int:
        [number] = struct.unpack_from(f"<{kind}", self._data, self._at)
        self._at += struct.calcsize(kind)
        return int(number)

    def text(self) -> str:
        """Read a text, which ends with a zero octet that its length counts."""
        return self.octets(self.number("H")).tobytes().removesuffix(b"\0").decode()

    def octets(self, size: int) -> memoryview:
        start, self._at = self._at, self._at + size
        return memoryview(self._data)[start : self._at]


def read_ctranslate2(path: Path, *, kind: str) -> dict[str, Array]:
    """Read all tensors as floats, by name; a number is a tensor of no dimension.

    Args:
        path: of the file.
        kind: what the file must say that it is, ``WhisperSpec``.

    Raises:
        ValueError: it is of another kind or version.
        KeyError: a tensor is of a type that such models have not.
    """
    reader = _Reader(path.read_bytes())
    found = (reader.number("I"), reader.text())
    if found != (_VERSION, kind):
        raise ValueError(f"{path.name} is {found}, expected {(_VERSION, kind)}")
    reader.number("I")  # the revision of that kind
    tensors = {}
    for _ in range(reader.number("I")):
        name = reader.text()
        shape = tuple(reader.number("I") for _ in range(reader.number("B")))
        stored = _TYPES[reader.number("B")]
        values = np.frombuffer(reader.octets(reader.number("I")), stored)
        tensors[name] = values.astype(np.float32).reshape(shape)
    return tensors
