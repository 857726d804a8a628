"""Describe tools as functions of TypeScript, as the harmony format has them."""

from collections.abc import Iterator, Sequence
from typing import Final

from inferd.dialects.effort import step
from inferd.dialects.schemas import (
    Schema,
    arguments_schema,
    as_schema,
    options,
    properties,
    required,
    resolved,
    values,
)
from inferd.dialects.turns import to_json
from inferd.job import Tool

_NAMES: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
_ANY: Final = "any"
_MAX_DEPTH: Final = 8
_MAX_TYPES: Final = 1000
"""Of one function, and how deep in one another; what is beyond may be anything. A schema
that refers to itself more than once would otherwise grow with each step."""


def namespace(name: str, tools: Sequence[Tool]) -> str:
    """Describe tools as the functions of a namespace."""
    functions = "".join(map(_function, tools))
    return f"namespace {name} {{\n\n{functions}}} // namespace {name}"


def _function(tool: Tool) -> str:
    schema = arguments_schema(tool)
    fields = "".join(_Types(schema).fields(schema, _MAX_DEPTH))
    given = f"(_: {{\n{fields}}})" if fields else "()"
    return f"{_comment(tool.description)}type {tool.name} = {given} => any;\n\n"


def _comment(text: str) -> str:
    return "".join(f"// {line}\n" for line in text.split("\n"))


def _default(schema: Schema) -> str:
    if "default" not in schema:
        return ""
    value = schema["default"]
    is_bare = isinstance(value, str) and values(schema) is not None
    return f", // default: {value if is_bare else to_json(value)}"


class _Types:
    """Writes the types of one schema."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._n_left = _MAX_TYPES

    def fields(self, schema: Schema, depth: int) -> Iterator[str]:
        """Write the properties of an object."""
        must = frozenset(required(schema))
        for name, given in properties(schema).items():
            step()
            here = resolved(given, self._root)
            about = as_schema(given).get("description", here.get("description"))
            comment = _comment(about) if about and isinstance(about, str) else ""
            key = name if name in must else f"{name}?"
            field = f"{comment}{key}: {self._type(here, depth)}{_default(here)},\n"
            step(len(field))
            yield field

    def _type(self, schema: object, depth: int) -> str:
        """Write a type; alternatives are written as a union."""
        self._n_left -= 1
        if depth == 0 or self._n_left < 0:
            return _ANY
        here = resolved(schema, self._root)
        types = [*self._alternatives(here, depth - 1)]
        if here.get("nullable") is True:
            types.append("null")
        return " | ".join(dict.fromkeys(types)) or _ANY

    def _alternatives(self, schema: Schema, depth: int) -> Iterator[str]:
        listed, choices, given = values(schema), options(schema), schema.get("type")
        if listed is not None:
            for each in listed:
                text = to_json(each)
                step(len(text))
                yield text
        elif choices is not None:
            for each in choices:
                yield self._type(each, depth)
        else:
            for kind in given if isinstance(given, list) else [given]:
                yield self._of_kind(kind, schema, depth)

    def _of_kind(self, kind: object, schema: Schema, depth: int) -> str:
        if kind == "array":
            item = self._type(schema.get("items"), depth)
            return f"({item})[]" if " | " in item else f"{item}[]"
        if kind == "object":
            fields = "".join(self.fields(schema, depth))
            return f"{{\n{fields}}}" if fields else "object"
        return _NAMES.get(str(kind), _ANY)
