"""Parse a configuration from TOML, and explain what is wrong with it.

An unknown key, a wrong type and a value out of range are refused with the key, the value
and what is allowed. A configuration with an error is refused as a whole.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from types import GenericAlias
from typing import Annotated, Final, cast

import msgspec
from msgspec import Meta, inspect

from inferd.config.kinds.registry import KINDS, KindRegistry
from inferd.config.settings import BackendSettings, Config, ConfigError

SHOWN_CHARS = 120
"""Characters of a refused value that the error message repeats."""


def parse_config(text: str, kinds: KindRegistry = KINDS) -> Config:
    """Parse a TOML configuration.

    Args:
        text: of the file.
        kinds: the kinds of backends that it may have.

    Raises:
        ConfigError: the message is one line with the key, the value and what is allowed.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(_one_line(f"not TOML: {error}")) from error
    tables = config_type(kinds)
    try:
        parsed = msgspec.convert(document, tables)
    except msgspec.ValidationError as error:
        explained = _Explainer(tables, document).explain(str(error))
        raise ConfigError(_one_line(explained)) from error
    config = Config(
        **{field: getattr(parsed, field) for field in Config.__struct_fields__}
    )
    _refuse_contradictions(config, kinds)
    return config


def config_type(kinds: KindRegistry) -> type[Config]:
    """Make the type of configurations whose backends are of these kinds."""
    one_of = reduce(or_, [kind.settings for kind in kinds.kinds])
    tables = GenericAlias(tuple, (one_of, ...))
    backends = Annotated[tables, Meta(min_length=1)]  # type: ignore[valid-type]  # made here
    made = msgspec.defstruct(
        "Config",
        [("backend", backends, (kinds.default,))],
        bases=(Config,),
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return cast("type[Config]", made)


def _refuse_contradictions(config: Config, kinds: KindRegistry) -> None:
    _refuse_equal_names(config.backend)
    for index, backend in enumerate(config.backend):
        if found := kinds.of(backend).contradiction(backend):
            raise ConfigError(
                f"backend[{index}].{found.key} = {_shown(found.value)}: "
                f"needs {found.needs}"
            )


def _refuse_equal_names(backends: Sequence[BackendSettings]) -> None:
    seen: dict[str, str] = {}
    for index, backend in enumerate(backends):
        if backend.name in seen:
            raise ConfigError(
                f"backend[{index}].name = {backend.name!r}: each backend needs its own name"
            )
        seen[backend.name] = f"the name of backend {backend.name}"
    for index, backend in enumerate(backends):
        for alias in backend.aliases:
            if alias in seen:
                raise ConfigError(
                    f"backend[{index}].aliases = {alias!r}: this is already {seen[alias]}"
                )
            seen[alias] = f"an alias of backend {backend.name}"


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


_MESSAGE: Final = re.compile(
    r"(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<where>.*)`)?", re.DOTALL
)
_STEP: Final = re.compile(r"([A-Za-z0-9_]+)|\[(\d+)\]")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class _Explainer:
    """Explainer of what msgspec says of a document.

    Args:
        tables: the type that the document does not have.
        document: the refused one.
    """

    def __init__(self, tables: type[Config], document: Mapping[str, object]) -> None:
        self._root = inspect.type_info(tables)
        self._document = document

    def explain(self, message: str) -> str:
        """Rewrite a message of msgspec, to name the key, the value and what is allowed."""
        parts = _MESSAGE.fullmatch(message)
        what, where = (parts["what"], parts["where"] or "") if parts else (message, "")
        if unknown := _UNKNOWN.fullmatch(what):
            key = f"{where}.{unknown[1]}".lstrip(".")
            return f"{key}: no such key; allowed: {', '.join(self._keys(where))}"
        if what.startswith(("Invalid enum value", "Invalid value")):
            what = f"expected one of {', '.join(self._choices(where))}"
        what = what[0].lower() + what[1:].replace(" | null`", "`")  # TOML has no null
        value = _look_up(self._document, where)
        return f"{where} = {_shown(value)}: {what}" if where else what

    def _keys(self, where: str) -> list[str]:
        """List the keys of the table at a path."""
        keys: list[str] = []
        value = _look_up(self._document, where)
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
        for step in _STEP.finditer(where):
            tables = _of_kind(types, _look_up(self._document, path))
            types = [member for table in tables for member in _inside(table, step[1])]
            path = where[: step.end()]
        return types


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
