"""Read protobuf messages with varint and length-delimited fields, as ONNX uses."""

from collections.abc import Iterator
from typing import NamedTuple

_MORE = 0x80
_SIGN_BIT, _BITS = 63, 64


class Field(NamedTuple):
    """One field of a message."""

    number: int
    integer: int
    """Value of a varint field, otherwise 0."""
    data: memoryview
    """Value of a length-delimited field, otherwise empty."""

    @property
    def text(self) -> str:
        """The bytes decoded as UTF-8."""
        return str(self.data, "utf-8")


def fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of a message, in the order of the file.

    Raises:
        ValueError: a field has another wire type.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire_type = key >> 3, key & 7
        value, at = _varint(message, at)
        match wire_type:
            case 0:
                yield Field(number, value, message[:0])
            case 2:
                yield Field(number, 0, message[at : at + value])
                at += value
            case _:
                raise ValueError(f"protobuf field {number} has wire type {wire_type}")


def integers(data: memoryview) -> Iterator[int]:
    """Yield the signed integers of a packed field."""
    at = 0
    while at < len(data):
        number, at = _varint(data, at)
        yield number - (1 << _BITS) if number >> _SIGN_BIT else number


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Decode a varint at an offset; return its value and the offset behind it."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & ~_MORE) << shift
        at, shift = at + 1, shift + 7
        if not byte & _MORE:
            return number, at
