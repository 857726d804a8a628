"""A published document, cut to the operations that are served; pure."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, cast

EVENTS: Final = "text/event-stream"
Schema = dict[str, object]
Served = tuple[str, str]
"""A method in capitals, and a path as the document has it."""


def trim(document: Schema, served: Collection[Served]) -> Schema:
    """Return a document with some operations, and what these refer to.

    Args:
        document: OpenAPI 3.1; its references are all local.
        served: the operations that stay; those that it does not have are left out.
    """
    paths: Schema = {}
    for method, path in served:
        item = at(document, ("paths", path))
        operation = item.get(method.lower())
        if operation is not None:
            entry = cast("Schema", paths.setdefault(path, {}))
            entry[method.lower()] = operation
    trimmed: Schema = {
        "openapi": document["openapi"],
        "info": document["info"],
        "paths": paths,
    }
    for reference in _references_from(document, paths):
        *parents, name = steps(reference)
        entry = trimmed
        for parent in parents:
            entry = cast("Schema", entry.setdefault(parent, {}))
        entry[name] = at(document, (*parents, name))
    return trimmed


def corrected(node: object) -> object:
    """Return a part of a document whose schemas say what their words mean.

    - ``nullable`` is no keyword of OpenAPI 3.1;
    - ``oneOf`` refuses what has two forms, of which one contains the other;
    - a ``discriminator`` without a mapping has the names of schemas as its values.
    """
    if isinstance(node, list):
        return [corrected(each) for each in node]
    if not isinstance(node, dict):
        return node
    kept = {
        ("anyOf" if key == "oneOf" else key): corrected(value)
        for key, value in node.items()
        if key != "discriminator"
    }
    if kept.get("nullable") is not True:
        return kept
    del kept["nullable"]
    return {"anyOf": [kept, {"type": "null"}]}


def operations_of(document: Schema) -> list[Served]:
    """List the operations of a trimmed document."""
    return [
        (method.upper(), path)
        for path, item in at(document, ("paths",)).items()
        for method in cast("Schema", item)
    ]


def at(document: Schema, path: Collection[str]) -> Schema:
    """Return the object at a place; an empty one where there is none."""
    found: object = document
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def steps(reference: str) -> list[str]:
    """Return the keys that lead to what a local reference names."""
    words = reference.removeprefix("#/").split("/")
    return [word.replace("~1", "/").replace("~0", "~") for word in words]


def references(node: object) -> Iterator[str]:
    """Yield the references in a part of a document."""
    if isinstance(node, dict):
        if isinstance(reference := node.get("$ref"), str):
            yield reference
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from references(each)


def _references_from(document: Schema, node: object) -> set[str]:
    """List the references in a part of a document, and in what they name."""
    found: set[str] = set()
    new = {*references(node)}
    while new:
        found |= new
        new = {
            inner
            for reference in new
            for inner in references(at(document, steps(reference)))
        } - found
    return found


def with_answer(document: Schema, path: str, media: str, schema: Schema) -> Schema:
    """Return a document with one more media type of the answers with status 200.

    Args:
        document: trimmed; it is not changed.
        path: of the operation, whose method is POST; without effect if there is none.
        media: its type; one that the document has stays.
        schema: of the body, or of each event.
    """
    place = ("paths", path, "post", "responses", "200", "content")
    if not at(document, place):
        return document
    return with_value(
        document, place, {media: {"schema": schema}, **at(document, place)}
    )


def with_value(document: Schema, place: Sequence[str], value: Schema) -> Schema:
    """Return a document with another object at a place; it is not changed itself."""
    if not place:
        return value
    first, *others = place
    return {**document, first: with_value(at(document, (first,)), others, value)}


def without_events(node: object) -> object:
    """Return a part of a document whose streams have no schema.

    Schemathesis takes it as that of an event with its name, and not of its data.
    """
    if isinstance(node, list):
        return [without_events(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: {} if key == EVENTS else without_events(value)
        for key, value in node.items()
    }
