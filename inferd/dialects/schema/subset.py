"""The subset of JSON Schema that the grammars of non-JSON call syntaxes enforce.

It is a list of supported keywords: other keywords of JSON Schema are rejected. Keywords that
JSON Schema does not define are ignored.
"""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from inferd.dialects.schema.reader import (
    ANNOTATIONS,
    DEFINITIONS,
    Schema,
    allowed_types,
    alternatives,
    at_pointer,
    enum_values,
    properties,
    required,
    types_of,
)
from inferd.dialects.step_limit import step

UNSATISFIABLE: Final = "nothing can satisfy it"
_EVERY: Final = frozenset(
    {
        *("type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "then"),
        *("else", "$ref", "$dynamicRef", "$recursiveRef", "$dynamicAnchor"),
    }
)
"""Keywords for values of any type."""
_NUMERIC: Final = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        "multipleOf",
    }
)
_OF_KIND: Final = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "integer": _NUMERIC,
    "number": _NUMERIC,
    "boolean": frozenset[str](),
    "null": frozenset[str](),
    "array": frozenset(
        {
            *("items", "minItems", "maxItems", "prefixItems", "additionalItems"),
            *("uniqueItems", "contains", "minContains", "maxContains"),
            "unevaluatedItems",
        }
    ),
    "object": frozenset(
        {
            *("properties", "required", "additionalProperties", "patternProperties"),
            *("propertyNames", "minProperties", "maxProperties", "dependencies"),
            *("dependentRequired", "dependentSchemas", "unevaluatedProperties"),
        }
    ),
}
_HELD_TO: Final = _NUMERIC | {
    *("type", "minLength", "maxLength", "pattern", "items", "minItems", "maxItems"),
    *("properties", "required", "additionalProperties"),
}
"""Keywords that are enforced in a schema without listed values and alternatives."""
_INTO_SHARED: Final = tuple(f"#/{each}/" for each in DEFINITIONS)
MAX_REFERENCES: Final = 8
"""Longest chain of references that is followed."""


class UnsupportedSchemaError(Exception):
    """A schema that cannot be enforced.

    Args:
        where: a JSON pointer to the part.
        why: a short reason.
    """

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")


class SchemaNode(NamedTuple):
    """A part of a schema with its JSON pointer."""

    schema: object
    pointer: str = ""

    def at(self, *steps: str | int) -> "SchemaNode":
        """Return a part of this node, which must exist."""
        here, where = self
        for each in steps:
            here = here[each]  # type: ignore[index]  # the caller has looked
            where += f"/{each}"
            step(len(where))
        return SchemaNode(here, where)

    def unsupported(self, *keywords: str) -> UnsupportedSchemaError:
        """Make the error for unsupported keywords."""
        listed = ", ".join(f'"{each}"' for each in keywords)
        return UnsupportedSchemaError(self.pointer, f"not supported: [{listed}]")


class Property(NamedTuple):
    """A property of an object."""

    name: str
    value: SchemaNode
    is_required: bool


def refuse_external_refs(schema: object, where: str) -> None:
    """Reject references to anything but shared definitions.

    Raises:
        UnsupportedSchemaError: there is such a reference.
    """
    waiting = [schema]
    while waiting:
        here = waiting.pop()
        step()
        if isinstance(here, dict):
            pointer = here.get("$ref", _INTO_SHARED[0])
            if isinstance(pointer, str) and not pointer.startswith(_INTO_SHARED):
                why = f"references may lead only to {' and '.join(_INTO_SHARED)}"
                raise UnsupportedSchemaError(where, why)
        waiting += here.values() if isinstance(here, dict) else ()
        waiting += here if isinstance(here, list) else ()


def keywords_of(kind: str) -> frozenset[str]:
    """Return the keywords that constrain values of a type."""
    return _OF_KIND[kind]


def check_supported(part: SchemaNode, root: Schema) -> tuple[Schema, str]:
    """Follow references, and check that the keywords of the schema are supported.

    Returns:
        The schema and its JSON pointer.

    Raises:
        UnsupportedSchemaError: they are not.
    """
    step(len(part.pointer))
    part = follow_refs(part, root)
    schema = {} if part.schema is True else part.schema
    if schema is False:
        raise UnsupportedSchemaError(part.pointer, UNSATISFIABLE)
    if not isinstance(schema, dict):
        return {}, part.pointer
    known = _known(schema, root)
    if excess := sorted(known - _allowed(schema)):
        raise part.unsupported(*excess)
    if "oneOf" in known:
        _check_exclusive(part, root)
    return schema, part.pointer


def follow_refs(part: SchemaNode, root: Schema) -> SchemaNode:
    """Follow references, and an ``allOf`` with a single schema.

    Raises:
        UnsupportedSchemaError: a reference is broken, or has keywords beside it.
    """
    for _ in range(MAX_REFERENCES):
        schema = part.schema
        if not isinstance(schema, dict) or not {"$ref", "allOf"} & schema.keys():
            return part
        match schema:
            case {"$ref": str(pointer)} if has_only(schema, "$ref"):
                part = SchemaNode(at_pointer(pointer, root), pointer.removeprefix("#"))
                if part.schema is None:
                    raise UnsupportedSchemaError(
                        part.pointer, "there is no such schema"
                    )
            case {"allOf": [_]} if has_only(schema, "allOf"):
                part = part.at("allOf", 0)
            case _:
                raise part.unsupported(*sorted({"$ref", "allOf"} & schema.keys()))
    raise UnsupportedSchemaError(part.pointer, "references lead round and round")


def listed_values(schema: Schema, where: str) -> list[object] | None:
    """Return the listed values whose types are allowed; ``None`` if none are listed.

    Raises:
        UnsupportedSchemaError: no listed value has an allowed type.
    """
    listed = enum_values(schema)
    if listed is None:
        return None
    step(len(listed))
    typed = allowed_types({key: schema[key] for key in schema if key == "type"}, {})
    found = [each for each in listed if types_of(each) & typed]
    if not found:
        raise UnsupportedSchemaError(where, UNSATISFIABLE)
    return found


def alternative_nodes(schema: Schema, where: str) -> list[SchemaNode] | None:
    """Return the alternatives of ``anyOf`` or ``oneOf``, if there are any."""
    given = alternatives(schema)
    step(len(given or ()) * (1 + len(where)))
    key = "anyOf" if "anyOf" in schema else "oneOf"
    if given is None:
        return None
    return [
        SchemaNode(each, f"{where}/{key}/{index}") for index, each in enumerate(given)
    ]


def object_properties(
    schema: Schema, where: str
) -> tuple[list[Property], SchemaNode | None]:
    """Return the listed properties of an object, and the schema of other properties.

    Other properties are generated only if none is listed.

    Raises:
        UnsupportedSchemaError: a required property is forbidden.
    """
    needed = dict.fromkeys(required(schema))
    listed = properties(schema)
    step((len(needed) + len(listed)) * (1 + len(where)))
    others = SchemaNode(schema.get("additionalProperties", True), where)
    others = others._replace(pointer=f"{where}/additionalProperties")
    found = [*_listed(schema, where, needed)]
    unlisted = [name for name in needed if name not in listed]
    found += [Property(name, others, is_required=True) for name in unlisted]
    may_have_others = "properties" not in schema and others.schema is not False
    for each in found:
        if each.is_required and each.value.schema is False:
            raise UnsupportedSchemaError(where, UNSATISFIABLE)
    found = [each for each in found if each.value.schema is not False]
    return found, others if may_have_others else None


def _listed(schema: Schema, where: str, needed: Collection[str]) -> Iterator[Property]:
    for name, value in properties(schema).items():
        part = SchemaNode(value, f"{where}/properties/{name}")
        yield Property(name, part, is_required=name in needed)


def _known(schema: Schema, root: Schema) -> frozenset[str]:
    """Return the keywords of a schema that constrain the values it may allow."""
    allowed = allowed_types(schema, root)
    words = _EVERY.union(*(_OF_KIND[kind] for kind in allowed))
    idle = ["uniqueItems"] if schema.get("uniqueItems") is False else []
    return frozenset(words & schema.keys()).difference(idle)


def _allowed(schema: Schema) -> frozenset[str]:
    for keyword in ("const", "enum"):
        if keyword in schema:
            return frozenset({keyword, "type"})
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return frozenset({keyword})
    return _HELD_TO


def _check_exclusive(part: SchemaNode, root: Schema) -> None:
    """Reject ``oneOf`` unless its schemas have different types."""
    seen: set[str] = set()
    for each in alternative_nodes(part.schema, part.pointer) or ():  # type: ignore[arg-type]
        allowed = set(allowed_types(each.schema, root))
        allowed |= {"integer"} if "number" in allowed else set()
        if seen & allowed:
            raise UnsupportedSchemaError(
                part.pointer,
                "oneOf is only supported if its schemas have different types",
            )
        seen |= allowed


def has_only(schema: Schema, *keywords: str) -> bool:
    """Return whether a schema has no other constraints than these keywords."""
    return schema.keys() - {*keywords} <= ANNOTATIONS | {"$anchor"}
