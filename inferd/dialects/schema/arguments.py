"""Schemas that the arguments of forced calls must satisfy; unsupported ones are rejected."""

from typing import Final

from inferd.backend.job import ToolSpec
from inferd.dialects.schema.reader import (
    DEFINITIONS,
    SCHEMA_MAX_DEPTH,
    Schema,
    as_object_schema,
    at_pointer,
    is_deeper_than,
    parse_json_strict,
)
from inferd.dialects.schema.subset import (
    MAX_REFERENCES,
    UNSATISFIABLE,
    SchemaNode,
    UnsupportedSchemaError,
    check_supported,
    follow_refs,
    has_only,
)

_MOVELESS: Final = frozenset({*DEFINITIONS, "$id", "$anchor"})
"""Keywords whose meaning depends on their position in the schema."""


def full_arguments_schema(tool: ToolSpec) -> dict[str, object]:
    """Return the schema of a tool's arguments, for compilers of all of JSON Schema.

    Raises:
        UnsupportedSchemaError: it is not a schema, too deep, or allows no object.
    """
    root = _whole(tool)
    here = root
    for _ in range(MAX_REFERENCES):
        pointer = here.get("$ref")
        if not isinstance(pointer, str) or not has_only(here, "$ref", "type"):
            break
        found = at_pointer(pointer, root)
        if not isinstance(found, dict) or _MOVELESS & found.keys():
            break
        shared = {key: root[key] for key in DEFINITIONS if key in root}
        here = {**_object(found, ""), **shared}
    return as_object_schema(here)


def supported_arguments_schema(tool: ToolSpec) -> tuple[Schema, str, Schema]:
    """Return the schema of a tool's arguments, for the grammars of this package.

    Returns:
        The schema, its JSON pointer, and the root schema for references.

    Raises:
        UnsupportedSchemaError: it cannot be enforced, or allows no object.
    """
    root = _whole(tool)
    untyped = {key: value for key, value in root.items() if key != "type"}
    found, where = follow_refs(SchemaNode(untyped), root)
    schema = as_object_schema(_object(found, where))
    check_supported(SchemaNode(schema, where), root)
    return schema, where, root


def _whole(tool: ToolSpec) -> Schema:
    given = parse_json_strict(tool.input_schema)
    if is_deeper_than(given, SCHEMA_MAX_DEPTH):
        raise UnsupportedSchemaError("", f"over {SCHEMA_MAX_DEPTH} levels deep")
    return _object(given, "")


def _object(schema: object, where: str) -> Schema:
    """Check that a client's value is a schema that allows an object."""
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        why = UNSATISFIABLE if schema is False else "not a schema"
        raise UnsupportedSchemaError(where, why)
    given = schema.get("type", "object")
    if "object" not in (given if isinstance(given, list) else [given]):
        raise UnsupportedSchemaError(where, UNSATISFIABLE)
    return schema
