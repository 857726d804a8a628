"""The grammar of Gemma 4's calls, held to the schemas of tools."""

import re
from collections.abc import Sequence
from typing import Final

from inferd.dialects.gemma4_calls import (
    BARE_KEY,
    BEGIN,
    END,
    QUOTE,
    ordered,
    text_of,
)
from inferd.dialects.lark import Lark, either, in_a_row
from inferd.dialects.schemas import (
    KINDS,
    Schema,
    arguments_schema,
    bounds,
    kinds,
    options,
    properties,
    required,
    resolved,
    text_like,
    unwrapped,
    values,
)
from inferd.job import Tool

_NUMERIC: Final = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "multipleOf",
)


def write_calls(lark: Lark, tools: Sequence[Tool]) -> str:
    """Give the expression for one call or more, arguments in their order."""
    calls = [_write_call(lark, each) for each in tools]
    call = f"{lark.text(f'{BEGIN}call:')} {either(calls)} {lark.text(END)}"
    return in_a_row(lark, call, "")


def _write_call(lark: Lark, tool: Tool) -> str:
    schema = arguments_schema(tool)
    return f"{lark.text(tool.name)} {_Writer(lark, schema).members(schema)}"


class _Writer:
    """Gives expressions for values that a schema allows.

    Held to: kinds, listed values, members, lengths, patterns, and all of numbers.

    Args:
        lark: the grammar.
        root: the schema that references lead into.
    """

    def __init__(self, lark: Lark, root: Schema) -> None:
        self._lark = lark
        self._root = root
        self._rules: dict[str, str] = {}  # for references
        self._any: str | None = None

    def value(self, schema: object) -> str:
        """Match a value."""
        pointer = unwrapped(schema).get("$ref")
        if not isinstance(pointer, str):
            return self._own(resolved(schema, self._root))
        if pointer not in self._rules:

            def body_of(name: str) -> str:
                self._rules[pointer] = name
                return self._own(resolved(schema, self._root))

            self._lark.recursive(body_of)
        return self._rules[pointer]

    def _own(self, schema: Schema) -> str:
        listed, choices = values(schema), options(schema)
        if listed is not None:
            return either([self._lark.text(text_of(each)) for each in listed])
        if choices is not None:
            return either([self.value(each) for each in choices])
        allowed = kinds(schema, self._root)
        if allowed == KINDS:
            return self._anything()
        return either([self._of(kind, schema) for kind in sorted(allowed)])

    def _of(self, kind: str, schema: Schema) -> str:
        match kind:
            case "string":
                text = self._lark.until(QUOTE, text_like(schema))
                return f"{self._lark.text(QUOTE)} {text}"
            case "array":
                return self._items(schema)
            case "object":
                return self.members(schema)
            case _:
                rules = {key: schema[key] for key in _NUMERIC if key in schema}
                return self._lark.json({**rules, "type": kind})

    def _items(self, schema: Schema) -> str:
        item = self._lark.rule(self.value(schema.get("items")))
        low, high = bounds(schema, "minItems", "maxItems")
        if high == 0:
            return '"[]"'
        most = high - 1 if isinstance(high, int) else ""
        several = f'{item} ("," {item}){{{max(low - 1, 0)},{most}}}'
        return f'"[" {several} "]"' if low else f'"[" ({several})? "]"'

    def members(self, schema: Schema) -> str:
        """Match an object."""
        if "properties" not in schema:
            return self._any_members()
        needed = required(schema)
        first = then = '""'  # what may follow a member, and what may begin
        for name, each in reversed(ordered(dict(properties(schema)))):
            member = self._lark.rule(f"{self._key(name)} {self.value(each)}")
            following = f'"," {member} {then}'
            beginning = f"{member} {then}"
            if name not in needed:
                following = f"({following} | {then})"
                beginning = f"({beginning} | {first})"
            first, then = self._lark.rule(beginning), self._lark.rule(following)
        return f'"{{" {first} "}}"'

    def _key(self, name: str) -> str:
        key = name if re.fullmatch(BARE_KEY, name) else text_of(name)
        return self._lark.text(f"{key}:")

    def _anything(self) -> str:
        if self._any is None:
            self._any = self._lark.recursive(self._every_kind)
        return self._any

    def _every_kind(self, name: str) -> str:
        self._any = name
        return either([self._of(each, {}) for each in sorted(KINDS - {"integer"})])

    def _any_members(self) -> str:
        key = self._lark.pattern(BARE_KEY)
        member = self._lark.rule(f'{key} ":" {self._anything()}')
        return f'"{{" ({member} ("," {member})*)? "}}"'
