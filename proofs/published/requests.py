"""The requests of a published document, cut to those that the tables of fields accept; pure.

A published schema allows more than is served: any further field, and fields that are refused.
Requests that are drawn from it are refused, nearly all of them, which says nothing of answers.
"""

from collections.abc import Collection, Mapping
from typing import Final, cast

from inferd.bridge.translation.fields import FieldTable, Use
from proofs.published.documents import Schema, at, steps

PLACE: Final = "#/components/schemas/"
ASKED: Final = "Asked"
"""Begins the names of schemas that are cut; the whole ones are those of answers."""
Limits = Mapping[str, Schema | None]
"""By field or schema: what is allowed in its place; ``None`` if it is left out."""


def limits_of(table: FieldTable, allowed: Limits) -> dict[str, Schema | None]:
    """Return what a table of fields accepts.

    Args:
        table: a refused field has the values that ask for nothing.
        allowed: more limits, of fields that are honoured.
    """
    refused: dict[str, Schema | None] = {
        field.name: {"enum": [*field.neutral]} if field.neutral else None
        for field in table.fields
        if field.use is Use.REFUSED
    }
    return refused | dict(allowed)


def request_fields(document: Schema, path: str) -> set[str]:
    """Return the fields of the requests of an operation."""
    fields: set[str] = set()
    for body in _bodies(document, path):
        fields |= at(_merged(document, at(body, ("schema",))), ("properties",)).keys()
    return fields


def narrow(
    document: Schema,
    fields: Mapping[str, Limits],
    schemas: Limits,
    required: Collection[str] = (),
) -> Schema:
    """Return a document whose requests have no other fields, and nothing that is refused.

    Args:
        document: trimmed; answers stay as they are.
        fields: limits of the fields of requests, by the path.
        schemas: limits of schemas that requests refer to, by name.
        required: fields that requests have which may have them.
    """
    narrowed = _Narrowed(document, schemas, required)
    paths: Schema = {}
    for path, item in at(document, ("paths",)).items():
        entry = cast("Schema", item)
        post = at(entry, ("post",))
        content: Schema = {
            media: {"schema": narrowed.request(at(body, ("schema",)), fields[path])}
            for media, body in at(post, ("requestBody", "content")).items()
            if isinstance(body, dict)
        }
        if content:
            body = {"required": True, "content": content}
            entry = {**entry, "post": {**post, "requestBody": body}}
        paths[path] = entry
    components = at(document, ("components",))
    all_schemas = {**at(components, ("schemas",)), **narrowed.schemas}
    return {
        **document,
        "paths": paths,
        "components": {**components, "schemas": all_schemas},
    }


class _Narrowed:
    """The schemas of requests, as far as they have been referred to."""

    def __init__(
        self, document: Schema, limits: Limits, required: Collection[str]
    ) -> None:
        self._document = document
        self._limits = limits
        self._required = required
        self.schemas: Schema = {}

    def request(self, schema: Schema, limits: Limits) -> Schema:
        """Return the schema of a request."""
        merged = _merged(self._document, schema)
        known = at(merged, ("properties",))
        properties = {
            name: known[name] for name in known if limits.get(name, {}) is not None
        }
        closed = cast("Schema", self._cut({**merged, "properties": properties}))
        own = {name: limits[name] for name in known if limits.get(name)}
        closed["properties"] = {**at(closed, ("properties",)), **own}
        more = [name for name in properties if name in self._required]
        closed["required"] = [*dict.fromkeys([*_listed(closed, "required"), *more])]
        return closed

    def _cut(self, node: object) -> object:
        if isinstance(node, list):
            return [self._cut(each) for each in node if not self._is_left_out(each)]
        if not isinstance(node, dict):
            return node
        if isinstance(reference := node.get("$ref"), str):
            return {"$ref": self._reference(reference)}
        merged = _merged(self._document, node) if "allOf" in node else node
        cut = {key: self._cut(value) for key, value in merged.items()}
        if "properties" in cut:
            cut["additionalProperties"] = False
        return cut

    def _is_left_out(self, node: object) -> bool:
        reference = node.get("$ref") if isinstance(node, dict) else None
        name = reference.removeprefix(PLACE) if isinstance(reference, str) else ""
        return name in self._limits and self._limits[name] is None

    def _reference(self, reference: str) -> str:
        name = reference.removeprefix(PLACE)
        asked = ASKED + name
        if asked not in self.schemas:
            self.schemas[asked] = {}  # it may refer to itself
            limit = self._limits.get(name)
            found = at(self._document, steps(reference))
            self.schemas[asked] = limit or self._cut(found)
        return PLACE + asked


def _bodies(document: Schema, path: str) -> list[Schema]:
    content = at(document, ("paths", path, "post", "requestBody", "content"))
    return [body for body in content.values() if isinstance(body, dict)]


def _merged(document: Schema, schema: Schema) -> Schema:
    """Return an object's schema without references and ``allOf`` at its top."""
    while isinstance(reference := schema.get("$ref"), str):
        schema = at(document, steps(reference))
    parts = schema.get("allOf")
    if not isinstance(parts, list):
        return schema
    merged: Schema = {}
    for part in (*parts, {key: schema[key] for key in schema if key != "allOf"}):
        found = _merged(document, part)
        properties = {**at(merged, ("properties",)), **at(found, ("properties",))}
        required = [*_listed(merged, "required"), *_listed(found, "required")]
        merged = {**merged, **found}
        if properties:
            merged |= {"properties": properties}
        if required:
            merged |= {"required": required}
    return merged


def _listed(schema: Schema, key: str) -> list[object]:
    found = schema.get(key)
    return found if isinstance(found, list) else []
