"""Explain what msgspec refuses in a configuration: key, value, and what is allowed."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import inspect

from inferd.config.settings import Config

SHOWN_CHARS = 120
"""Characters of a refused value that the error message repeats."""

_MESSAGE: Final = re.compile(
    r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<where>.*)`)?", re.DOTALL
)
STEP: Final = re.compile(r"([A-Za-z0-9_]+)|\[(\d+)\]")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`", re.DOTALL)


class Explanation(NamedTuple):
    """What is wrong with a document, and where."""

    text: str
    key: str
    """Path of the refused key, such as ``backend[0].name``; empty for the document."""
    is_missing: bool = False
    """Whether the key is required and not there."""


class Explainer:
    """Explainer of what msgspec says of a document.

    Args:
        tables: the type that the document does not have.
        document: the refused one.
        original: has the values that are shown; by default the document.
    """

    def __init__(
        self,
        tables: type[Config],
        document: Mapping[str, object],
        original: Mapping[str, object] | None = None,
    ) -> None:
        self._root = inspect.type_info(tables)
        self._document = document
        self._original = document if original is None else original

    def explain(self, message: str) -> Explanation:
        """Rewrite a message of msgspec, to name the key, the value and what is allowed."""
        parts = _MESSAGE.fullmatch(message)
        what, where = (parts["what"], parts["where"] or "") if parts else (message, "")
        if unknown := _UNKNOWN.fullmatch(what):
            key = f"{where}.{unknown[1]}".lstrip(".")
            keys = ", ".join(self._keys(where))
            return Explanation(f"{key}: no such key; allowed: {keys}", key)
        if missing := _MISSING.fullmatch(what):
            key = f"{where}.{missing[1]}".lstrip(".")
            return Explanation(self._text(what, where), key, is_missing=True)
        return Explanation(self._text(what, where), where)

    def _text(self, what: str, where: str) -> str:
        if what.startswith(("Invalid enum value", "Invalid value")):
            what = f"expected one of {', '.join(self._choices(where))}"
        what = what[0].lower() + what[1:].replace(" | null`", "`")  # TOML has no null
        value = look_up(self._original, where)
        return f"{where} = {shown(value)}: {what}" if where else what

    def _keys(self, where: str) -> list[str]:
        """List the keys of the table at a path."""
        keys: list[str] = []
        value = look_up(self._document, where)
        for table in _of_kind(self._types_at(where), value):
            if isinstance(table, inspect.StructType):
                keys += [field.encode_name for field in table.fields]
                keys += [table.tag_field] if table.tag_field else []
        return sorted(keys)

    def _choices(self, where: str) -> list[str]:
        """List the words that a setting may be: of its ``Literal``, or kinds of a table."""
        table, _, key = where.rpartition(".")
        kinds = [
            str(kind.tag)
            for kind in self._types_at(table)
            if isinstance(kind, inspect.StructType) and kind.tag_field == key
        ]
        words = [
            str(word)
            for literal in self._types_at(where)
            if isinstance(literal, inspect.LiteralType)
            for word in literal.values
        ]
        return [*sorted(kinds), *words]

    def _types_at(self, where: str) -> list[inspect.Type]:
        """List the types that the value at a path may have."""
        types, path = _members(self._root), ""
        for step in STEP.finditer(where):
            tables = _of_kind(types, look_up(self._document, path))
            types = [member for table in tables for member in _inside(table, step[1])]
            path = where[: step.end()]
        return types


def one_line(text: str) -> str:
    """Escape every character that is not printable."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def shown(value: object) -> str:
    """Render a value in one line; cut off a long one."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        return "something of thousands of characters"
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def look_up(document: object, where: str) -> object:
    """Return the value at a path of msgspec, such as ``backend[0].name``."""
    for name, index in STEP.findall(where):
        if name and isinstance(document, Mapping):
            document = document.get(name)
        elif index and isinstance(document, Sequence):
            document = document[int(index)]
    return document


def _of_kind(
    types: Sequence[inspect.Type], value: object
) -> list[inspect.StructType | inspect.VarTupleType]:
    """Keep arrays, and the tables whose tag the value has."""
    fields = value if isinstance(value, Mapping) else {}
    return [
        kind
        for kind in types
        if isinstance(kind, inspect.VarTupleType)
        or (
            isinstance(kind, inspect.StructType)
            and (kind.tag_field is None or fields.get(kind.tag_field) == kind.tag)
        )
    ]


def _inside(
    outer: inspect.StructType | inspect.VarTupleType, name: str | None
) -> list[inspect.Type]:
    """List the types of a table's key, or of an array's items."""
    if isinstance(outer, inspect.VarTupleType):
        return _members(outer.item_type)
    return [
        member
        for field in outer.fields
        if field.encode_name == name
        for member in _members(field.type)
    ]


def _members(kind: inspect.Type) -> list[inspect.Type]:
    return [*kind.types] if isinstance(kind, inspect.UnionType) else [kind]
