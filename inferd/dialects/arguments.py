"""What a forced call's arguments are held to: all of the tool's schema, or it is refused."""

from typing import Final

from inferd.dialects.enforced import (
    MAX_STEPS,
    NOTHING_FITS,
    Placed,
    UnenforceableError,
    checked,
    followed,
    stands_alone,
)
from inferd.dialects.schemas import (
    SCHEMA_MAX_DEPTH,
    SHARED,
    Schema,
    as_arguments,
    decoded,
    is_deeper,
    pointed_at,
)
from inferd.job import Tool

_MOVELESS: Final = frozenset({*SHARED, "$id", "$anchor"})
"""Keywords that mean something else in another place."""


def arguments_json(tool: Tool) -> dict[str, object]:
    """Give the schema of a tool's arguments, for those who know all of JSON Schema.

    Raises:
        UnenforceableError: it is none, or too deep, or allows no object.
    """
    root = _whole(tool)
    here = root
    for _ in range(MAX_STEPS):
        pointer = here.get("$ref")
        if not isinstance(pointer, str) or not stands_alone(here, "$ref", "type"):
            break
        found = pointed_at(pointer, root)
        if not isinstance(found, dict) or _MOVELESS & found.keys():
            break
        shared = {key: root[key] for key in SHARED if key in root}
        here = {**_object(found, ""), **shared}
    return as_arguments(here)


def arguments_held(tool: Tool) -> tuple[Schema, str, Schema]:
    """Give the schema of a tool's arguments, for grammars of ours.

    Returns:
        It, where it stands, and the schema that references lead into.

    Raises:
        UnenforceableError: it cannot be held to, or allows no object.
    """
    root = _whole(tool)
    untyped = {key: value for key, value in root.items() if key != "type"}
    found, where = followed(Placed(untyped), root)
    schema = as_arguments(_object(found, where))
    checked(Placed(schema, where), root)
    return schema, where, root


def _whole(tool: Tool) -> Schema:
    given = decoded(tool.input_schema)
    if is_deeper(given, SCHEMA_MAX_DEPTH):
        raise UnenforceableError("", f"over {SCHEMA_MAX_DEPTH} levels deep")
    return _object(given, "")


def _object(schema: object, where: str) -> Schema:
    """Take what a client gave for a schema that allows an object."""
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        why = NOTHING_FITS if schema is False else "no schema"
        raise UnenforceableError(where, why)
    given = schema.get("type", "object")
    if "object" not in (given if isinstance(given, list) else [given]):
        raise UnenforceableError(where, NOTHING_FITS)
    return schema
