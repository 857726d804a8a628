"""Tolerant reader of the JSON Schemas of tools.

Schemas come from clients. Nothing here fails: invalid parts are ignored.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from inferd.backend.job import ToolSpec
from inferd.dialects.step_limit import step

Schema = Mapping[str, object]

JSON_TYPES: Final = frozenset(
    {"string", "integer", "number", "boolean", "null", "array", "object"}
)
"""All types of JSON Schema."""
_OPEN: Final = frozenset(
    {
        *("$ref", "allOf", "anyOf", "oneOf", "patternProperties"),
        *("additionalProperties", "unevaluatedProperties"),
    }
)
"""Keywords that may allow properties other than those in ``properties``."""
DEFINITIONS: Final = ("$defs", "definitions")
ANNOTATIONS: Final = frozenset(
    {
        *("title", "description", "default", "examples", "deprecated"),
        *("$schema", "$id", "$comment", *DEFINITIONS),
    }
)
"""Keywords that do not constrain values."""
_CLOSED: Final = {"additionalProperties": False}
_ANY_TEXT: Final = "(?s:.*)"
_ANCHORED: Final = re.compile(
    r"(?P<begin>\^?)(?P<middle>(?:\\.|[^\\])*?)(?P<end>\$?)", re.DOTALL
)
_INDEX: Final = re.compile("[0-9]{1,9}")
SCHEMA_MAX_DEPTH: Final = 64
"""Nesting depth of a schema; deeper ones are ignored, or rejected for forced calls."""
_MAX_STEPS: Final = 8
"""Longest chain of references that is followed."""


def parse_json_strict(text: str) -> object:
    """Parse JSON strictly; return the text itself if it is invalid."""
    try:
        value: object = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    return value


def arguments_schema(tool: ToolSpec) -> dict[str, object]:
    """Return the schema of a tool's arguments, as far as it can be read.

    The result always describes an object.
    """
    given = parse_json_strict(tool.input_schema)
    schema = {} if is_deeper_than(given, SCHEMA_MAX_DEPTH) else as_schema(given)
    refers = {"$ref", "allOf"} & schema.keys()
    if refers and schema.keys() <= ANNOTATIONS | {"$ref", "allOf", "type"}:
        schema = standalone(resolve_ref(schema, schema) or schema, schema)
    return as_object_schema(schema)


def as_object_schema(schema: Schema) -> dict[str, object]:
    """Restrict a schema to objects.

    Properties that it does not list are forbidden, unless it allows them explicitly.
    """
    unlisted = set(required(schema)) - properties(schema).keys()
    is_closed = "properties" in schema and not unlisted and not _OPEN & schema.keys()
    closed = _CLOSED if is_closed else {}
    return {**schema, **closed, "type": "object"}


def as_schema(value: object) -> Schema:
    """Return a value as a schema; one that is not an object, as ``true``, gives ``{}``."""
    return value if isinstance(value, dict) else {}


def properties(schema: Schema) -> Schema:
    """Return the schemas of the listed properties by name."""
    return as_schema(schema.get("properties"))


def required(schema: Schema) -> list[str]:
    """Return the names of required properties."""
    names = schema.get("required")
    given = names if isinstance(names, list) else []
    return [each for each in given if isinstance(each, str)]


def standalone(schema: object, root: Schema) -> dict[str, object]:
    """Return a part of a schema with the definitions that it may refer to."""
    shared = {key: root[key] for key in DEFINITIONS if key in root}
    return {**as_schema(schema), **shared}


def unwrapped(schema: object) -> Schema:
    """Unwrap an ``allOf`` with a single schema, which some clients use for references."""
    here = as_schema(schema)
    for _ in range(SCHEMA_MAX_DEPTH):
        match here:
            case {"allOf": [only]} if here.keys() <= ANNOTATIONS | {"allOf"}:
                here = as_schema(only)
            case _:
                break
    return here


def resolve_ref(schema: object, root: Schema) -> Schema:
    """Follow a reference within the schema; a broken one gives ``{}``."""
    for _ in range(_MAX_STEPS):
        step()
        here = unwrapped(schema)
        pointer = here.get("$ref")
        if not isinstance(pointer, str):
            return here
        schema = at_pointer(pointer, root)
    return {}


def alternatives(schema: Schema) -> list[object] | None:
    """Return the alternatives of ``anyOf`` or ``oneOf``, if there are any."""
    for keyword in ("anyOf", "oneOf"):
        given = schema.get(keyword)
        if isinstance(given, list) and given:
            return given
    return None


def enum_values(schema: Schema) -> list[object] | None:
    """Return the values of ``enum`` or ``const``, if it has either."""
    if "const" in schema:
        return [schema["const"]]
    given = schema.get("enum")
    return given if isinstance(given, list) and given else None


def allowed_types(schema: object, root: Schema) -> frozenset[str]:
    """Return the types that a value may have; all if the schema does not say."""
    found: set[str] = set()
    seen: dict[int, Schema] = {}  # alternatives may refer to one another
    waiting = [schema]
    while waiting:
        step()
        here = resolve_ref(waiting.pop(), root)
        if id(here) not in seen:
            seen[id(here)] = here
            choices = alternatives(here) if enum_values(here) is None else None
            waiting += choices or []
            found |= _own_kinds(here) if choices is None else frozenset()
    return frozenset(found) or JSON_TYPES


def _own_kinds(schema: Schema) -> frozenset[str]:
    listed = enum_values(schema)
    if listed is not None:
        step(len(listed))
        of_each_type = {type(each): each for each in listed}
        return frozenset().union(*map(types_of, of_each_type.values()))
    given = schema.get("type")
    named = given if isinstance(given, list) else [given]
    step(len(named))
    return (
        JSON_TYPES.intersection(each for each in named if isinstance(each, str))
        or JSON_TYPES
    )


def types_of(value: object) -> frozenset[str]:
    """Return the types of a value."""
    match value:
        case None:
            kind = {"null"}
        case bool():
            kind = {"boolean"}
        case int():
            kind = {"integer", "number"}
        case float():
            kind = {"number"}
        case str():
            kind = {"string"}
        case list():
            kind = {"array"}
        case _:
            kind = {"object"}
    return frozenset(kind)


def string_patterns(schema: Schema) -> list[str]:
    """Return regular expressions that an allowed string must all match."""
    likes: list[str] = []
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and (parts := _ANCHORED.fullmatch(pattern)):
        before, after = ("" if parts[each] else _ANY_TEXT for each in ("begin", "end"))
        likes.append(f"{before}(?:{parts['middle']}){after}")
    low, high = bounds(schema, "minLength", "maxLength")
    if (low, high) != (0, ""):
        likes.append(f"(?s:.{{{low},{high}}})")
    return likes


def bounds(schema: Schema, low: str, high: str) -> tuple[int, int | str]:
    """Return the minimum and maximum of two keywords; ``""`` for no maximum."""
    least, most = (_count(schema.get(each)) for each in (low, high))
    return least or 0, "" if most is None else most


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None


def is_deeper_than(value: object, n_levels: int) -> bool:
    """Return whether objects and arrays in a value are nested more deeply than this."""
    level = _nested([value])
    for _ in range(n_levels):
        level = [item for each in level for item in _nested(each)]
    return bool(level)


def _nested(value: object) -> list[object]:
    match value:
        case dict():
            items = list(value.values())
        case list():
            items = value
        case _:
            items = []
    return [item for item in items if isinstance(item, (dict, list))]


def at_pointer(pointer: str, root: Schema) -> object:
    """Return the part of a schema that a JSON pointer leads to, or ``None``."""
    step(len(pointer))
    first, *parts = pointer.split("/")
    found: object = root if first == "#" else None
    for part in parts:
        name = part.replace("~1", "/").replace("~0", "~")
        match found:
            case list() if _INDEX.fullmatch(name) and int(name) < len(found):
                found = found[int(name)]
            case _:
                found = as_schema(found).get(name)
    return found
