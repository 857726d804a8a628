"""Read protobuf messages: fields of numbers and of bytes, which is all that ONNX has."""

from collections.abc import Iterator
from typing import NamedTuple

_MORE = 0x80
_SIGN_BIT, _BITS = 63, 64


class Field(NamedTuple):
    """One field of a message."""

    number: int
    integer: int
    """Its value, or 0 if that is bytes."""
    data: memoryview
    """Its value, or nothing if that is a number."""

    @property
    def text(self) -> str:
        """Its bytes as text."""
        return str(self.data, "utf-8")


def fields(message: memoryview) -> Iterator[Field]:
    """Walk the fields of a message, in the order of the file.

    Raises:
        ValueError: a field is of another kind.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        value, at = _varint(message, at)
        match kind:
            case 0:
                yield Field(number, value, message[:0])
            case 2:
                yield Field(number, 0, message[at : at + value])
                at += value
            case _:
                raise ValueError(f"protobuf field {number} is of kind {kind}")


def integers(data: memoryview) -> Iterator[int]:
    """Unpack signed numbers that lie one behind the other."""
    at = 0
    while at < len(data):
        number, at = _varint(data, at)
        yield number - (1 << _BITS) if number >> _SIGN_BIT else number


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Read a number in groups of seven bits, the lowest first; give where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & ~_MORE) << shift
        at, shift = at + 1, shift + 7
        if not byte & _MORE:
            return number, at
