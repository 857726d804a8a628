"""JSON schemas of requests: from tables of fields and the types of what is honoured."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

import msgspec

from inferd.bridge.recordings.form import FILE
from inferd.bridge.translation.api import (
    FormOperation,
    HostedOperation,
    Lookup,
    Operation,
)
from inferd.bridge.translation.fields import Field, Use
from inferd.bridge.translation.managed import ManagedOperation
from inferd.bridge.translation.query import QueryForm

Schema = dict[str, object]
PLACE: Final = "#/components/schemas/"
_FILE: Final[Schema] = {"contentMediaType": "application/octet-stream"}
_NULL: Final[Schema] = {"type": "null"}


class Schemas:
    """The schemas of types, with those that they refer to.

    Args:
        types: all that are asked for later.
    """

    def __init__(self, types: Sequence[object]) -> None:
        self._types = [*types]
        schemas, self.components = msgspec.json.schema_components(
            self._types, schema_hook=_of_any, ref_template=PLACE + "{name}"
        )
        self._schemas: Sequence[Schema] = schemas

    def of(self, kind: object) -> Schema:
        """Return the schema of a type; of a struct it is a reference."""
        return self._schemas[self._types.index(kind)]

    def resolved(self, kind: object) -> Schema:
        """Return the schema of a struct, without a reference at its top."""
        schema = self.of(kind)
        while isinstance(place := schema.get("$ref"), str):
            schema = self.components[place.removeprefix(PLACE)]
        return schema

    def without(self, kinds: Iterable[object]) -> Schema:
        """Return what references name, but for some structs that none does."""
        places = {schema.get("$ref") for schema in map(self.of, kinds)}
        return {
            name: schema
            for name, schema in self.components.items()
            if PLACE + name not in places
        }


def _of_any(kind: type) -> Schema:
    """Return the schema of values of any type."""
    if kind is not object:
        raise NotImplementedError
    return {"description": "Any value."}  # the library takes an empty one as none


def request_schema(
    operation: Operation | FormOperation | ManagedOperation | HostedOperation | Lookup,
    schemas: Schemas,
) -> Schema:
    """Return the schema of a route's requests.

    A field has the schema of its type if it is honoured, any value if it is ignored, and the
    values that ask for nothing if it is refused; ``null`` counts as left out.
    """
    known = schemas.resolved(operation.body) if operation.body else {}
    honoured = cast("Mapping[str, Schema]", known.get("properties", {}))
    required = cast("Sequence[str]", known.get("required", ()))
    if isinstance(operation, FormOperation):
        honoured, required = {**honoured, FILE: _FILE}, [*required, FILE]
    properties = {
        field.name: _field_schema(
            field, honoured.get(field.name, {}), is_required=field.name in required
        )
        for field in (operation.table.fields if operation.table else ())
    }
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def query_parameters(queries: Sequence[QueryForm]) -> list[Schema]:
    """Describe what a route takes behind its path; of several forms, what any of them does."""
    found: dict[str, Schema] = {}
    for query in queries:
        [_], components = msgspec.json.schema_components([query.kind])
        known = cast("Mapping[str, Schema]", components[query.kind.__name__])
        types = cast("Mapping[str, Schema]", known.get("properties", {}))
        for field in query.table.fields:
            schema = types.get(field.name, {})
            found[field.name] = {
                "name": field.name,
                "in": "query",
                "description": _description(field),
                "schema": {key: schema[key] for key in schema if key != "default"},
            }
    return [*found.values()]


def _field_schema(
    field: Field, known: Mapping[str, object], *, is_required: bool
) -> Schema:
    said: Schema = {"description": _description(field)}
    match field.use:
        case Use.IGNORED:
            return said
        case Use.REFUSED:
            return {**said, "enum": [None, *field.neutral]}
        case Use.HONOURED:
            schema = {**known} if is_required else _or_null(known)
            return {**schema, **said} if field.note else schema


def _or_null(schema: Mapping[str, object]) -> Schema:
    """Return a schema that allows ``null`` as well."""
    forms = schema.get("anyOf")
    if not schema or (isinstance(forms, list) and _NULL in forms):
        return {**schema}
    without_default = {key: each for key, each in schema.items() if key != "default"}
    default = {"default": schema["default"]} if "default" in schema else {}
    return {"anyOf": [without_default, _NULL], **default}


def _description(field: Field) -> str:
    use = field.use.value.capitalize()
    return f"{use}: {field.note}" if field.note else f"{use}."
