"""The reference of all settings, from the structs of ``inferd.config``."""

import inspect
import json
import sys
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.inspect import (
    BoolType,
    Field,
    FloatType,
    IntType,
    LiteralType,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from inferd import paths
from inferd.config.kinds.registry import KINDS
from inferd.config.parse import config_type
from tools.documents.markdown import NOTE, attribute_docs, first_line, prose, table

SETTINGS_INTRO = """# Configuration

A configuration is a TOML file.
A key that nobody knows, a wrong type or a value out of range stops the start, with the key, the value and what is allowed.
The first file that is there counts; files are not merged.

1. `--config FILE`, for `serve` and `doctor`.
2. `$INFERD_CONFIG`.
3. `$XDG_CONFIG_HOME/inferd/config.toml`, by default `~/.config/inferd/config.toml`.
4. `/etc/inferd/config.toml`.

Without any, the defaults below hold: one backend, `chat`, with the embedded model.

"""
WORDS: Mapping[type[Type], str] = {
    BoolType: "boolean",
    IntType: "integer",
    FloatType: "number",
    StrType: "string",
}
HEAD = ("key", "type", "default", "meaning")


def settings_reference() -> str:
    """Write every table of the configuration, then the places of files."""
    sections = [settings_table(title, struct) for title, struct in tables()]
    places = [place("Directory of the sockets", paths.runtime_directory)]
    places.append(place("Directory of the cache", paths.cache_directory))
    places.append(place("Directory of the log", paths.log_directory))
    return NOTE + SETTINGS_INTRO + "\n".join([*sections, *places])


def tables() -> Iterator[tuple[str, StructType]]:
    """Give the tables of the file with their titles, in order."""
    for field in fields_of(config_type(KINDS)):
        for struct in structs_in(field.type):
            kind = f' with `kind = "{struct.tag}"`' if struct.tag else ""
            is_array = isinstance(field.type, VarTupleType)
            name = f"[[{field.name}]]" if is_array else f"[{field.name}]"
            yield f"`{name}`{kind}", struct


def fields_of(struct: type[Struct]) -> tuple[Field, ...]:
    """List the fields of a struct."""
    info = type_info(struct)
    assert isinstance(info, StructType)  # noqa: S101  # a struct's
    return info.fields


def structs_in(kind: Type) -> list[StructType]:
    """Find the structs that a type is made of."""
    match kind:
        case StructType():
            return [kind]
        case VarTupleType(item_type=item):
            return structs_in(item)
        case UnionType(types=types):
            return [struct for each in types for struct in structs_in(each)]
        case _:
            return []


def settings_table(title: str, struct: StructType) -> str:
    """Write the section of one table."""
    docs = docs_of(struct.cls)
    rows = [
        (
            f"`{field.name}`",
            type_text(field.type),
            default_text(field),
            docs[field.name],
        )
        for field in struct.fields
    ]
    if struct.tag_field:
        kind = (f"`{struct.tag_field}`", f'`"{struct.tag}"`', "required", "")
        rows.insert(0, kind)
    return f"## {title}\n\n{first_line(struct.cls.__doc__)}\n\n{table(HEAD, rows)}"


def docs_of(struct: type[Struct]) -> dict[str, str]:
    """Read the docstrings of a struct's keys, its base classes' as well."""
    docs: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if issubclass(base, Struct) and base is not Struct:
            docs |= attribute_docs(sys.modules[base.__module__])[base.__name__]
    return docs


def type_text(kind: Type) -> str:
    """Say in words what a value may be."""
    match kind:
        case StrType(pattern=pattern) if pattern:
            text = f"string, `{pattern}`"
        case StructType(fields=fields):
            keys = [f"`{each.name}`: {type_text(each.type)}" for each in fields]
            text = f"table of {', '.join(keys)}"
        case LiteralType(values=values):
            text = ", ".join(f'`"{value}"`' for value in values)
        case VarTupleType(item_type=item):
            text = f"array of {type_text(item)}"
        case UnionType(types=types):
            given = (each for each in types if not isinstance(each, NoneType))
            text = " or ".join(map(type_text, given))
        case _:
            text = f"{WORDS[type(kind)]}{range_text(kind)}"
    return text


def range_text(kind: Type) -> str:
    """Say which numbers are allowed."""
    if not isinstance(kind, (IntType, FloatType)):
        return ""
    bounds = ((">", kind.gt), ("≥", kind.ge), ("<", kind.lt), ("≤", kind.le))
    words = [f"{sign} {bound:.10g}" for sign, bound in bounds if bound is not None]
    return f" {', '.join(words)}" if words else ""


def default_text(field: Field) -> str:
    """Write a default as TOML has it."""
    if field.required:
        return "required"
    return "" if field.default is None else f"`{json.dumps(field.default)}`"


def place(title: str, function: object) -> str:
    """Write the section of a function that finds a directory: its docstring's list."""
    return f"## {title}\n\n{prose(inspect.getdoc(function))}\n"
