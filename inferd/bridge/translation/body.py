"""From the bytes of a request's body to its type."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.bridge.translation.fields import FieldTable
from inferd.limits.bridge import MAX_STATED_CHARS
from inferd.limits.protocol import REPEATS_CHECKED_BYTES
from inferd.wire.codec import DECODE_FAILURES

T = TypeVar("T")
_PLACE: Final = re.compile(r" - at `\$\.?(.*)`\Z", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`\Z", re.DOTALL)
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""Half of a surrogate pair, as JSON spells it."""
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
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
        _refuse_half_pairs(body)
        raise BridgeError(Reason.INVALID_REQUEST, f"the body: {error}") from error
    fields = table.select(document)
    _refuse_repeats(body, document)
    return convert(fields, kind)


def _refuse_half_pairs(body: bytes) -> None:
    """Refuse a text with half of a surrogate pair, of which decoding says less.

    Args:
        body: one that cannot be decoded.

    Raises:
        BridgeError: that is why; ``param`` is the text's place.
    """
    if not _HALF.search(body):
        return
    try:
        keys = _keys_of_half_pair(json.loads(body))
    except (ValueError, RecursionError):
        return  # that is not all that is wrong
    if keys:
        parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
        text = "".join(parts).removeprefix(".")[:MAX_STATED_CHARS]
        place = text.encode(errors="backslashreplace").decode()
        raise invalid(
            place, "has half of a UTF-16 surrogate pair, which stands for no character"
        )


def _keys_of_half_pair(document: object) -> Sequence[str | int]:
    """Return the keys that lead to a text with half of a surrogate pair; none without."""
    keys: list[str | int] = []
    left = [_entries(document)]
    while left:
        if (entry := next(left[-1], None)) is None:
            left.pop()
            del keys[-1:]
            continue
        if any(isinstance(each, str) and _HALF_PAIR.search(each) for each in entry):
            return [*keys, entry[0]]
        if isinstance(entry[1], dict | list):
            keys.append(entry[0])
            left.append(_entries(entry[1]))
    return ()


def _entries(value: object) -> Iterator[tuple[str | int, object]]:
    """Give the keys and values of an object or an array."""
    match value:
        case dict():
            yield from value.items()
        case list():
            yield from enumerate(value)
        case _:
            pass


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
        raise _mistyped(str(error)) from error


def _mistyped(text: str) -> BridgeError:
    """Return the failure of a request whose type the library refuses, in its words."""
    place = _PLACE.search(text)
    param = place[1][:MAX_STATED_CHARS] if place else None
    what = _PLACE.sub("", text)[:MAX_STATED_CHARS]
    if missing := _MISSING.search(what):
        param = f"{param}.{missing[1]}" if param else missing[1]
        return BridgeError(
            Reason.INVALID_REQUEST,
            f"Missing required parameter: '{param}'.",
            param=param,
        )
    return BridgeError(
        Reason.INVALID_REQUEST, f"{param}: {what}" if param else what, param=param
    )
