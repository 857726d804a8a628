"""From the bytes of a request's body to its type."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.bridge.translation.fields import FieldTable
from inferd.limits.bridge import MAX_STATED_CHARS
from inferd.limits.protocol import REPEATS_CHECKED_BYTES
from inferd.wire.codec import DECODE_FAILURES

T = TypeVar("T")
_PLACE: Final = re.compile(r" - at `\$\.?(.*)`\Z", re.DOTALL)
_TWICE: Final = 2
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
    fields = table.select(document)
    _refuse_repeats(body, document)
    return convert(fields, kind)


def _refuse_repeats(body: bytes, names: Iterable[str]) -> None:
    """Refuse a field that an object has twice, of which decoding kept the last.

    As in the daemon, longer bodies than ``REPEATS_CHECKED_BYTES`` and names that are
    spelled with escapes are not searched: there the last one counts.

    Args:
        body: one that has been decoded already.
        names: of its fields.

    Raises:
        BridgeError: one occurs twice.
    """
    if len(body) > REPEATS_CHECKED_BYTES:
        return
    if all(body.count(f'"{name}"'.encode()) < _TWICE for name in names):
        return
    try:
        pairs = json.loads(body, object_pairs_hook=list)
    except RecursionError as error:
        raise BridgeError(Reason.INVALID_REQUEST, f"the body: {error}") from error
    for name, count in Counter(name for name, _ in pairs).items():
        if count >= _TWICE:
            raise invalid(name, "is there twice")


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


def convert_part(value: object, kind: type[T], place: str) -> T:
    """Give decoded JSON within a request its type.

    Args:
        value: the JSON.
        kind: the type.
        place: the path within the request that has it.

    Raises:
        BridgeError: it has another one; ``param`` is the path of the value at fault.
    """
    try:
        return convert(value, kind)
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
