"""Read a model file of CTranslate2: a header, then named tensors."""

import struct
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from .source import SourceError

Array = npt.NDArray[np.float32]

_VERSION: Final = 6
_TYPES: Final = {0: "<f4", 1: "i1", 2: "<i2", 4: "<f2"}


class _Reader:
    """Cursor over the bytes of the file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, kind: str) -> int:
        [number] = struct.unpack_from(f"<{kind}", self._data, self._at)
        self._at += struct.calcsize(kind)
        return int(number)

    def text(self) -> str:
        """Read a string; its length includes a terminating zero byte."""
        return self.octets(self.number("H")).tobytes().removesuffix(b"\0").decode()

    def octets(self, size: int) -> memoryview:
        start, self._at = self._at, self._at + size
        return memoryview(self._data)[start : self._at]


def read_ctranslate2(path: Path, *, kind: str) -> dict[str, Array]:
    """Read all tensors as floats, by name; a scalar is a tensor of no dimensions.

    Args:
        path: of the file.
        kind: the required specification name, such as ``WhisperSpec``.

    Raises:
        SourceError: the file has another specification or version, or is damaged.
    """
    try:
        return _read(_Reader(path.read_bytes()), kind)
    except (KeyError, ValueError, struct.error) as error:
        raise SourceError(f"{path.name}: {error}") from error


def _read(reader: _Reader, kind: str) -> dict[str, Array]:
    """Read the file from its beginning.

    Raises:
        KeyError: a tensor has an unsupported type.
        ValueError: the file has another specification or version, or a wrong size.
        struct.error: the file ends early.
    """
    found = (reader.number("I"), reader.text())
    if found != (_VERSION, kind):
        raise ValueError(f"it is {found}, expected {(_VERSION, kind)}")
    reader.number("I")  # the revision of the specification
    tensors = {}
    for _ in range(reader.number("I")):
        name = reader.text()
        shape = tuple(reader.number("I") for _ in range(reader.number("B")))
        stored = _TYPES[reader.number("B")]
        values = np.frombuffer(reader.octets(reader.number("I")), stored)
        tensors[name] = values.astype(np.float32).reshape(shape)
    return tensors
