"""Parse a configuration from TOML, and explain what is wrong with it.

An unknown key, a wrong type and a value out of range are refused with the key, the value
and what is allowed. A configuration with an error is refused as a whole.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import inspect

from inferd.config.settings import Config, ConfigError, LlamaCppSettings

SHOWN_CHARS = 120
"""Characters of a refused value that the error message repeats."""


def parse_config(text: str) -> Config:
    """Parse a TOML configuration.

    Raises:
        ConfigError: the message is one line with the key, the value and what is allowed.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(_one_line(f"not TOML: {error}")) from error
    try:
        config = msgspec.convert(document, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_one_line(_explain(document, str(error)))) from error
    _refuse_contradictions(config)
    return config


def _refuse_contradictions(config: Config) -> None:
    seen: set[str] = set()
    for index, backend in enumerate(config.backend):
        if backend.name in seen:
            raise ConfigError(
                f"backend[{index}].name = {backend.name!r}: each backend needs its own name"
            )
        seen.add(backend.name)
        match backend:
            case LlamaCppSettings(speculation="draft", draft_model=None):
                raise ConfigError(
                    f"backend[{index}].speculation = 'draft': needs draft_model, the path "
                    "of a GGUF file"
                )
            case LlamaCppSettings(speculation="off" | "lookup", draft_model=str(draft)):
                raise ConfigError(
                    f"backend[{index}].draft_model = {_shown(draft)}: needs "
                    "speculation = 'draft'"
                )
            case LlamaCppSettings(mmproj=None, mmproj_sha256=str(digest)):
                raise ConfigError(
                    f"backend[{index}].mmproj_sha256 = {_shown(digest)}: needs mmproj"
                )
            case _:
                pass


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


_MESSAGE: Final = re.compile(
    r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<where>.*)`)?", re.DOTALL
)
_STEP: Final = re.compile(r"([A-Za-z0-9_]+)|\[(\d+)\]")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_ROOT: Final = inspect.type_info(Config)


def _explain(document: Mapping[str, object], message: str) -> str:
    """Turn the message of msgspec into key, value and what is allowed."""
    parts = _MESSAGE.fullmatch(message)
    what, where = (parts["what"], parts["where"] or "") if parts else (message, "")
    if unknown := _UNKNOWN.fullmatch(what):
        key = f"{where}.{unknown[1]}".lstrip(".")
        return f"{key}: no such key; allowed: {', '.join(_keys(document, where))}"
    if what.startswith(("Invalid enum value", "Invalid value")):
        what = f"expected one of {', '.join(_choices(document, where))}"
    what = what[0].lower() + what[1:].replace(" | null`", "`")  # TOML has no null
    value = _look_up(document, where)
    return f"{where} = {_shown(value)}: {what}" if where else what


def _shown(value: object) -> str:
    """Render a value in one line; cut off a long one."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        return "something of thousands of characters"
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _look_up(document: object, where: str) -> object:
    """Return the value at a path of msgspec, such as ``backend[0].name``."""
    for name, index in _STEP.findall(where):
        if name and isinstance(document, Mapping):
            document = document.get(name)
        elif index and isinstance(document, Sequence):
            document = document[int(index)]
    return document


def _keys(document: object, where: str) -> list[str]:
    """List the keys of the table at a path."""
    keys: list[str] = []
    for table in _of_kind(_types_at(document, where), _look_up(document, where)):
        if isinstance(table, inspect.StructType):
            keys += [field.encode_name for field in table.fields]
            keys += [table.tag_field] if table.tag_field else []
    return sorted(keys)


def _choices(document: object, where: str) -> list[str]:
    """List the words that a setting may be: of its ``Literal``, or the kinds of a table."""
    table, _, key = where.rpartition(".")
    kinds = [
        str(kind.tag)
        for kind in _types_at(document, table)
        if isinstance(kind, inspect.StructType) and kind.tag_field == key
    ]
    words = [
        str(word)
        for literal in _types_at(document, where)
        if isinstance(literal, inspect.LiteralType)
        for word in literal.values
    ]
    return [*sorted(kinds), *words]


def _types_at(document: object, where: str) -> list[inspect.Type]:
    """List the types that the value at a path may have."""
    types, path = _members(_ROOT), ""
    for step in _STEP.finditer(where):
        tables = _of_kind(types, _look_up(document, path))
        types = [member for table in tables for member in _inside(table, step[1])]
        path = where[: step.end()]
    return types


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
