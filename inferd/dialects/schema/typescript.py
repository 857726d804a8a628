"""Describe tools as TypeScript functions, as in the harmony format."""

from collections.abc import Iterator, Sequence
from typing import Final

from inferd.backend.job import ToolSpec
from inferd.dialects.rendering import to_json
from inferd.dialects.schema.reader import (
    Schema,
    alternatives,
    arguments_schema,
    as_schema,
    enum_values,
    properties,
    required,
    resolve_ref,
)
from inferd.dialects.step_limit import step

_NAMES: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}
_ANY: Final = "any"
_TYPE_CHARS: Final = 8
"""Characters that a shorter type counts as."""
_MAX_DEPTH: Final = 8
"""Nesting depth of types; deeper ones become ``any``."""
_REFERRED_CHARS: Final = 512
_REFERRED_CHARS_PER_CHAR: Final = 4
"""Characters that a function may have: a fixed number, and so many for each character of its
schema. Above this, references become ``any``, as short references can expand to much text."""


def namespace(name: str, tools: Sequence[ToolSpec]) -> str:
    """Describe tools as the functions of a namespace."""
    functions = "".join(map(_function, tools))
    return f"namespace {name} {{\n\n{functions}}} // namespace {name}"


def _function(tool: ToolSpec) -> str:
    schema = arguments_schema(tool)
    n_chars = _REFERRED_CHARS + _REFERRED_CHARS_PER_CHAR * len(tool.input_schema)
    fields = "".join(_Types(schema, n_chars).fields(schema, _MAX_DEPTH))
    given = f"(_: {{\n{fields}}})" if fields else "()"
    return f"{_comment(tool.description)}type {tool.name} = {given} => any;\n\n"


def _comment(text: str) -> str:
    return "".join(f"// {line}\n" for line in text.split("\n"))


def _default(schema: Schema) -> str:
    if "default" not in schema:
        return ""
    value = schema["default"]
    is_bare = isinstance(value, str) and enum_values(schema) is not None
    return f", // default: {value if is_bare else to_json(value)}"


class _Types:
    """Formatter of the types of one schema.

    Args:
        root: the schema.
        n_chars: number of characters after which references are not followed.
    """

    def __init__(self, root: Schema, n_chars: int) -> None:
        self._root = root
        self._n_left = n_chars
        self._open = {id(root)}

    def fields(self, schema: Schema, depth: int) -> Iterator[str]:
        """Format the properties of an object."""
        must = frozenset(required(schema))
        for name, given in properties(schema).items():
            step()
            here = self._resolved(given)
            about = as_schema(given).get("description", here.get("description"))
            comment = _comment(about) if about and isinstance(about, str) else ""
            key = name if name in must else f"{name}?"
            default = _default(here)
            self._n_left -= len(comment) + len(key) + len(default)
            field = f"{comment}{key}: {self._type(here, depth)}{default},\n"
            step(len(field))
            yield field

    def _resolved(self, schema: object) -> Schema:
        """Follow a reference, unless it is recursive or the limit is reached."""
        here = resolve_ref(schema, self._root)
        if here is schema:
            return here
        return {} if id(here) in self._open or self._n_left < 0 else here

    def _type(self, schema: object, depth: int) -> str:
        """Format a type; alternatives become a union."""
        self._n_left -= _TYPE_CHARS
        if depth == 0:
            return _ANY
        here = self._resolved(schema)
        self._open.add(id(here))
        types = [*self._alternatives(here, depth - 1)]
        self._open.discard(id(here))
        if here.get("nullable") is True:
            types.append("null")
        return " | ".join(dict.fromkeys(types)) or _ANY

    def _alternatives(self, schema: Schema, depth: int) -> Iterator[str]:
        listed, choices, given = (
            enum_values(schema),
            alternatives(schema),
            schema.get("type"),
        )
        if listed is not None:
            for each in listed:
                text = to_json(each)
                step(len(text))
                self._n_left -= len(text)
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
