"""Types of all frames and requests, for the clients in TypeScript and Go of the examples."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from tools.documents.schemas import MESSAGES, schema_text

Schema = Mapping[str, object]
_NOTE: Final = "// Written by tools/regenerate.py from protocol/schema; change what it follows from instead.\n"
_PREFIX: Final = "#/$defs/"
_SENT: Final = ("append", "blocks-request", "cancel", "command", "describe")
_INITIALISMS: Final = {"id": "ID", "ids": "IDs", "ms": "Ms", "ns": "Ns"}
_GO_SCALARS: Final = {
    "string": "string",
    "integer": "int64",
    "number": "float64",
    "boolean": "bool",
}
_TS_SCALARS: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}


def definitions() -> dict[str, Schema]:
    """Collect the types of all messages by their names, in the order of the messages."""
    found: dict[str, Schema] = {}
    for message in MESSAGES.values():
        defined = json.loads(schema_text(message))["$defs"]
        for name, schema in defined.items():
            found.setdefault(name, schema)
    return found


def answers() -> list[str]:
    """Name the frames that the daemon sends."""
    found: list[str] = []
    for name, message in MESSAGES.items():
        if name not in _SENT and not name.endswith("-request"):
            reference = json.loads(schema_text(message))["$ref"]
            found.append(reference.removeprefix(_PREFIX))
    return found


def _properties(schema: Schema) -> list[tuple[str, Schema, bool]]:
    """List the fields of an object: name, schema, and whether each is always there."""
    required = schema.get("required")
    always = required if isinstance(required, list) else []
    fields = schema.get("properties")
    assert isinstance(fields, dict)  # noqa: S101  # of objects of the protocol
    return [(name, each, name in always) for name, each in fields.items()]


def _options(schema: Schema) -> list[Schema]:
    """Return the schemas of which one holds, ``null`` left out."""
    among = schema.get("anyOf")
    options = among if isinstance(among, list) else [schema]
    return [each for each in options if each != {"type": "null"}]


def kind_of(schema: object) -> tuple[str, object]:
    """Return the kind of a schema, and what is within: ``any`` for one that says nothing."""
    if not isinstance(schema, dict):
        return "any", None
    for key in ("$ref", "enum", "anyOf"):
        if key in schema:
            return key, schema[key]
    kind = schema.get("type", "any")
    within = "items" if kind == "array" else "additionalProperties"
    return str(kind), schema.get(within)


def items_of(value: object) -> list[Schema]:
    """Return the items of a list."""
    assert isinstance(value, list)  # noqa: S101  # of schemas of the protocol
    return value


def _comment(schema: Schema, indent: str) -> str:
    text = schema.get("description")
    if not isinstance(text, str):
        return ""
    return "".join(f"{indent}// {line}\n" for line in text.splitlines())


# --- TypeScript -------------------------------------------------------------------------


def typescript() -> str:
    """Write the types for TypeScript."""
    parts = [_NOTE]
    for name, schema in definitions().items():
        parts.append(f"\n{_comment(schema, '')}{_typescript_definition(name, schema)}")
    frames = "".join(f"\n  | {name}" for name in answers())
    parts.append(
        f"\n// All that a daemon of this version sends.\nexport type AnyFrame ={frames};\n"
    )
    return "".join(parts)


def _typescript_definition(name: str, schema: Schema) -> str:
    if "properties" not in schema:
        return f"export type {name} = {_typescript_type(schema)};\n"
    lines = [f"export interface {name} {{\n"]
    for field, each, is_always in _properties(schema):
        mark = "" if is_always else "?"
        lines.append(_comment(each, "  "))
        lines.append(f"  {field}{mark}: {_typescript_type(each)};\n")
    return "".join([*lines, "}\n"])


def _typescript_type(schema: object) -> str:
    kind, value = kind_of(schema)
    match kind:
        case "$ref":
            return str(value).removeprefix(_PREFIX)
        case "enum":
            return " | ".join(map(json.dumps, items_of(value)))
        case "anyOf":
            return " | ".join(map(_typescript_type, items_of(value)))
        case "array":
            inner = _typescript_type(value)
            return f"({inner})[]" if " | " in inner else f"{inner}[]"
        case _:
            return _typescript_other(kind, value)


def _typescript_other(kind: str, value: object) -> str:
    if kind == "object":
        return f"Record<string, {_typescript_type(value)}>"
    return _TS_SCALARS.get(kind, "unknown")


# --- Go ---------------------------------------------------------------------------------


def go() -> str:
    """Write the types for Go: what need not be there is a pointer, or an empty slice."""
    parts = [f'{_NOTE}\npackage main\n\nimport "encoding/json"\n']
    known = definitions()
    for name, schema in known.items():
        parts.append(f"\n{_comment(schema, '')}{_go_definition(name, schema, known)}")
    return "".join(parts)


def _go_definition(name: str, schema: Schema, known: Mapping[str, Schema]) -> str:
    if "properties" not in schema:
        return f"type {name} {_go_type(schema, known)}\n"
    parts = [f"type {name} struct {{\n"]
    rows: list[tuple[str, str, str]] = []
    for field, each, is_always in _properties(schema):
        if comment := _comment(each, "\t"):
            parts += [*_aligned(rows), comment]
            rows.clear()
        tag = field if is_always else f"{field},omitempty"
        kind = _go_field(each, known, is_always=is_always)
        rows.append((_go_name(field), kind, f'`json:"{tag}"`'))
    return "".join([*parts, *_aligned(rows), "}\n"])


def _aligned(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """Write fields without comments between them as gofmt does, in columns."""
    n_name = max((len(name) for name, _, _ in rows), default=0)
    n_kind = max((len(kind) for _, kind, _ in rows), default=0)
    return [f"\t{name:{n_name}} {kind:{n_kind}} {tag}\n" for name, kind, tag in rows]


def _go_field(schema: Schema, known: Mapping[str, Schema], *, is_always: bool) -> str:
    kind = _go_type(schema, known)
    is_open = kind.startswith(("[]", "map[")) or kind == "json.RawMessage"
    return kind if is_always or is_open else f"*{kind}"


def _go_type(schema: object, known: Mapping[str, Schema]) -> str:
    kind, value = kind_of(schema)
    match kind:
        case "$ref":
            return str(value).removeprefix(_PREFIX)
        case "enum":
            is_text = all(isinstance(each, str) for each in items_of(value))
            return "string" if is_text else "bool"
        case "anyOf":
            return _go_union(_options({"anyOf": value}), known)
        case "array":
            return f"[]{_go_type(value, known)}"
        case _:
            return _go_other(kind, value, known)


def _go_other(kind: str, value: object, known: Mapping[str, Schema]) -> str:
    if kind == "object" and isinstance(value, dict):
        return f"map[string]{_go_type(value, known)}"
    return _GO_SCALARS.get(kind, "json.RawMessage")


def _go_union(options: Sequence[Schema], known: Mapping[str, Schema]) -> str:
    """Return a type that holds one of several: they are told apart by their ``type``."""
    kinds = {_go_type(each, known) for each in options}
    return kinds.pop() if len(kinds) == 1 else "json.RawMessage"


def _go_name(field: str) -> str:
    return "".join(
        _INITIALISMS.get(part, part.capitalize()) for part in field.split("_")
    )
