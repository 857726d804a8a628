"""From the fields of a form, which are texts, to the type of a request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from inferd.bridge.translation.body import convert
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.fields import Field, FieldTable, Use
from inferd.limits.bridge import MAX_STATED_CHARS

T = TypeVar("T")
FILE = "file"
"""The field of a form that has the file."""
_LIST = "[]"
_IS_TEXT = ", got `str`"


@dataclass(frozen=True)
class Form:
    """A form, once all of it has come."""

    fields: Sequence[tuple[str, str]]
    """Names and texts in their order, without the file."""
    file: bytes
    """The file; not empty."""


def read_form(form: Form, table: FieldTable, kind: type[T]) -> T:
    """Give the fields of a form a type: their names are those of the table.

    A field whose name in the table ends with ``[]`` may be repeated, and named without it.
    An empty text sets nothing.

    Raises:
        BridgeError: a field is unknown, repeated, refused, or has another type; ``param``
            names it.
    """
    known = {field.name: field for field in table.fields}
    given: dict[str, object] = {FILE: FILE}
    for name, text in form.fields:
        if text:
            _add(given, name, text, known)
    chosen = table.select(given)
    try:
        return convert(chosen, kind, is_strict=False)
    except BridgeError as error:
        raise _with_value(error, chosen) from error


def _add(
    given: dict[str, object], name: str, text: str, known: Mapping[str, Field]
) -> None:
    """Add a field to those that are given."""
    listed = name.removesuffix(_LIST) + _LIST
    if listed in known:
        values = given.setdefault(listed, [])
        assert isinstance(values, list)  # noqa: S101  # only lists have such names
        values.append(text)
    elif name in given:
        stated = name[:MAX_STATED_CHARS]
        raise BridgeError(
            Reason.INVALID_REQUEST, f"{stated}: is there twice", param=stated
        )
    elif whole := _refused_whole(name, known):
        given[whole] = {name: text}  # no field takes such a value for nothing asked
    else:
        given[name] = _meaning(text, known.get(name))


def _refused_whole(name: str, known: Mapping[str, Field]) -> str:
    """Return the refused field of which ``field[key]`` is a part; empty for none."""
    whole, bracket, _ = name.partition("[")
    field = known.get(whole)
    return whole if bracket and field and field.use is Use.REFUSED else ""


def _meaning(text: str, field: Field | None) -> object:
    """Return the value of a field's that asks for nothing which a text means, or the text."""
    for each in field.neutral if field else ():
        if isinstance(each, float) and _number(text) == each:
            return each
    return text


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _with_value(error: BridgeError, chosen: Mapping[str, object]) -> BridgeError:
    """Return an error that tells the text which is at fault: all fields are texts."""
    words = str(error)
    name = error.param or ""
    if name not in chosen or not words.endswith(_IS_TEXT):
        return error
    told = repr(chosen[name])[:MAX_STATED_CHARS]
    return BridgeError(
        error.reason, f"{words.removesuffix(_IS_TEXT)}, got {told}", param=name
    )
