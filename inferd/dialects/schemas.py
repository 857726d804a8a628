"""Read what clients say of the arguments of their tools, in JSON Schema.

Clients write what they like. Nothing here fails: what makes no sense says nothing.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from inferd.dialects.effort import step
from inferd.job import Tool

Schema = Mapping[str, object]

KINDS: Final = frozenset(
    {"string", "integer", "number", "boolean", "null", "array", "object"}
)
"""All that a value may be, as JSON Schema calls it."""
_OPEN: Final = frozenset(
    {
        *("$ref", "allOf", "anyOf", "oneOf", "patternProperties"),
        *("additionalProperties", "unevaluatedProperties"),
    }
)
"""Keywords by which more properties may be allowed, or none, than are listed."""
SHARED: Final = ("$defs", "definitions")
ANNOTATIONS: Final = frozenset(
    {
        *("title", "description", "default", "examples", "deprecated"),
        *("$schema", "$id", "$comment", *SHARED),
    }
)
"""Keywords that allow or forbid nothing themselves."""
_CLOSED: Final = {"additionalProperties": False}
_ANY_TEXT: Final = "(?s:.*)"
_ANCHORED: Final = re.compile(
    r"(?P<begin>\^?)(?P<middle>(?:\\.|[^\\])*?)(?P<end>\$?)", re.DOTALL
)
_INDEX: Final = re.compile("[0-9]{1,9}")
SCHEMA_MAX_DEPTH: Final = 64
"""Objects and arrays in one another in a schema: of one with more nothing is read, and no
call is held to it."""
_MAX_STEPS: Final = 8
"""References followed from one to the next."""


def decoded(text: str) -> object:
    """Read JSON strictly; what is none stays the text that it is."""
    try:
        value: object = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    return value


def arguments_schema(tool: Tool) -> dict[str, object]:
    """Give what a tool's schema says of its arguments, as far as it can be told.

    They are an object in any case.
    """
    given = decoded(tool.input_schema)
    schema = {} if is_deeper(given, SCHEMA_MAX_DEPTH) else as_schema(given)
    refers = {"$ref", "allOf"} & schema.keys()
    if refers and schema.keys() <= ANNOTATIONS | {"$ref", "allOf", "type"}:
        schema = alone(resolved(schema, schema) or schema, schema)
    return as_arguments(schema)


def as_arguments(schema: Schema) -> dict[str, object]:
    """Give a schema's part that is for objects.

    Properties that it does not list are no part of it, unless it says that they may be.
    """
    unlisted = set(required(schema)) - properties(schema).keys()
    is_closed = "properties" in schema and not unlisted and not _OPEN & schema.keys()
    closed = _CLOSED if is_closed else {}
    return {**schema, **closed, "type": "object"}


def as_schema(value: object) -> Schema:
    """Take a value as a schema: one that is no object, like ``true``, says nothing."""
    return value if isinstance(value, dict) else {}


def properties(schema: Schema) -> Schema:
    """List the properties that it names, each with its own schema."""
    return as_schema(schema.get("properties"))


def required(schema: Schema) -> list[str]:
    """List the properties that have to be there."""
    names = schema.get("required")
    given = names if isinstance(names, list) else []
    return [each for each in given if isinstance(each, str)]


def alone(schema: object, root: Schema) -> dict[str, object]:
    """Give a part of a schema so that it can stand alone, with what it may refer to."""
    shared = {key: root[key] for key in SHARED if key in root}
    return {**as_schema(schema), **shared}


def unwrapped(schema: object) -> Schema:
    """Take the only schema of ``allOf`` for itself: some write references like that."""
    here = as_schema(schema)
    for _ in range(SCHEMA_MAX_DEPTH):
        match here:
            case {"allOf": [only]} if here.keys() <= ANNOTATIONS | {"allOf"}:
                here = as_schema(only)
            case _:
                break
    return here


def resolved(schema: object, root: Schema) -> Schema:
    """Follow a reference within the schema; what leads nowhere says nothing."""
    for _ in range(_MAX_STEPS):
        step()
        here = unwrapped(schema)
        pointer = here.get("$ref")
        if not isinstance(pointer, str):
            return here
        schema = pointed_at(pointer, root)
    return {}


def options(schema: Schema) -> list[object] | None:
    """List the schemas of which one has to fit, if there are such."""
    for keyword in ("anyOf", "oneOf"):
        given = schema.get(keyword)
        if isinstance(given, list) and given:
            return given
    return None


def values(schema: Schema) -> list[object] | None:
    """List the values that are allowed, if it lists them."""
    if "const" in schema:
        return [schema["const"]]
    given = schema.get("enum")
    return given if isinstance(given, list) and given else None


def kinds(schema: object, root: Schema) -> frozenset[str]:
    """Tell of which kinds a value may be; all where the schema does not say."""
    found: set[str] = set()
    seen: dict[int, Schema] = {}  # alternatives may refer to one another
    waiting = [schema]
    while waiting:
        step()
        here = resolved(waiting.pop(), root)
        if id(here) not in seen:
            seen[id(here)] = here
            choices = options(here) if values(here) is None else None
            waiting += choices or []
            found |= _own_kinds(here) if choices is None else frozenset()
    return frozenset(found) or KINDS


def _own_kinds(schema: Schema) -> frozenset[str]:
    listed = values(schema)
    if listed is not None:
        step(len(listed))
        of_each_type = {type(each): each for each in listed}
        return frozenset().union(*map(kinds_of, of_each_type.values()))
    given = schema.get("type")
    named = given if isinstance(given, list) else [given]
    step(len(named))
    return KINDS.intersection(each for each in named if isinstance(each, str)) or KINDS


def kinds_of(value: object) -> frozenset[str]:
    """Tell of which kinds a value is."""
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


def text_likes(schema: Schema) -> list[str]:
    """Give regular expressions, all of which a string that it allows matches."""
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
    """Give the least and the greatest number that two keywords set; "" for no limit."""
    least, most = (_count(schema.get(each)) for each in (low, high))
    return least or 0, "" if most is None else most


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None


def is_deeper(value: object, n_levels: int) -> bool:
    """Tell whether a value has more objects and arrays inside each other than this."""
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


def pointed_at(pointer: str, root: Schema) -> object:
    """Find what a reference points at within a schema; nothing where it leads nowhere."""
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
