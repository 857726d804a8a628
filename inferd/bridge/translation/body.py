"""From the bytes of a request's body to its type."""

import re
from typing import Final, TypeVar

import msgspec

from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.fields import FieldTable
from inferd.limits.bridge import MAX_STATED_CHARS
from inferd.wire.codec import DECODE_FAILURES

T = TypeVar("T")
_PLACE: Final = re.compile(r" - at `\$\.?(.*)`\Z", re.DOTALL)
_OBJECT: Final = msgspec.json.Decoder(dict[str, object])


def read_body(body: bytes, table: FieldTable, kind: type[T]) -> T:
    """Decode a request: its fields are those of the table, its values those of the type.

    Raises:
        BridgeError: the body is no JSON object, or has a field or a value that is refused.
    """
    try:
        document = _OBJECT.decode(body)
    except DECODE_FAILURES as error:
        raise BridgeError(Reason.INVALID_REQUEST, f"the body: {error}") from error
    return convert(table.select(document), kind)


def read_part(
    fields: dict[str, object], table: FieldTable, kind: type[T], place: str
) -> T:
    """Give an object within a request its type, as ``read_body`` does with a body.

    Args:
        fields: of the object.
        table: of its fields.
        kind: with the honoured ones.
        place: the field of the request that has it.

    Raises:
        BridgeError: a field or a value is refused.
    """
    try:
        return convert(table.select(fields), kind)
    except BridgeError as error:
        param = f"{place}.{error.param}" if error.param else place
        raise BridgeError(error.reason, f"{place}: {error}", param=param) from error


def convert(fields: object, kind: type[T], *, is_strict: bool = True) -> T:
    """Give decoded JSON a type.

    Args:
        fields: the JSON.
        kind: the type.
        is_strict: whether texts are no numbers or booleans; those of forms are.

    Raises:
        BridgeError: it has another one; ``param`` is the path of the value at fault.
    """
    try:
        return msgspec.convert(fields, kind, strict=is_strict)
    except (msgspec.ValidationError, RecursionError) as error:
        text = str(error)
        place = _PLACE.search(text)
        param = place[1][:MAX_STATED_CHARS] if place else None
        what = _PLACE.sub("", text)[:MAX_STATED_CHARS]
        raise BridgeError(
            Reason.INVALID_REQUEST,
            f"{param}: {what}" if param else what,
            param=param,
        ) from error
