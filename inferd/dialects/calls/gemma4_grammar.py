"""Grammar of Gemma 4's tool calls, constrained by the schemas of the tools."""

import re
from collections.abc import Sequence

from inferd.backend.job import ToolSpec
from inferd.dialects.calls.gemma4_syntax import (
    BARE_KEY,
    BEGIN,
    END,
    QUOTE,
    format_value,
    read_call,
)
from inferd.dialects.lark import LarkBuilder, one_of, one_or_more_calls
from inferd.dialects.schema.arguments import supported_arguments_schema
from inferd.dialects.schema.reader import (
    JSON_TYPES,
    Schema,
    allowed_types,
    bounds,
    enum_values,
    string_patterns,
    unwrapped,
)
from inferd.dialects.schema.subset import (
    UNSATISFIABLE,
    Property,
    SchemaNode,
    UnsupportedSchemaError,
    alternative_nodes,
    check_supported,
    keywords_of,
    listed_values,
    object_properties,
)


def write_calls(lark: LarkBuilder, tools: Sequence[ToolSpec]) -> str:
    """Return the expression for calls, with arguments in alphabetical order.

    Raises:
        UnsupportedSchemaError: a schema cannot be enforced.
    """
    calls = [_write_call(lark, each) for each in tools]
    call = f"{lark.marker(f'{BEGIN}call:')} {one_of(calls)} {lark.marker(END)}"
    return one_or_more_calls(lark, call, "")


def _write_call(lark: LarkBuilder, tool: ToolSpec) -> str:
    schema, where, root = supported_arguments_schema(tool)
    return f"{lark.text(tool.name)} {_Writer(lark, root).arguments(schema, where)}"


class _Writer:
    """Builds expressions for the values that a schema allows.

    Args:
        lark: the grammar.
        root: the schema that references lead into.
    """

    def __init__(self, lark: LarkBuilder, root: Schema) -> None:
        self._lark = lark
        self._root = root
        self._rules: dict[str, str] = {}  # for references
        self._any: str | None = None

    def arguments(self, schema: Schema, where: str) -> str:
        """Match arguments, whose schema was checked before."""
        if enum_values(schema) is not None:
            return self._own(schema, where)
        return self.members(schema, where)

    def value(self, part: SchemaNode) -> str:
        """Match a value."""
        schema, where = check_supported(part, self._root)
        pointer = unwrapped(part.schema).get("$ref")
        if not isinstance(pointer, str):
            return self._own(schema, where)
        if pointer not in self._rules:

            def body_of(name: str) -> str:
                self._rules[pointer] = name
                return self._own(schema, where)

            self._lark.recursive(body_of)
        return self._rules[pointer]

    def _own(self, schema: Schema, where: str) -> str:
        listed = listed_values(schema, where)
        if listed is not None:
            return one_of([self._listed(each, where) for each in listed])
        given = alternative_nodes(schema, where)
        if given is not None:
            return one_of([self.value(each) for each in given])
        allowed = allowed_types(schema, self._root)
        words = frozenset[str]().union(*map(keywords_of, allowed))
        if allowed == JSON_TYPES and not words & schema.keys():
            return self._anything()
        return one_of([self._of(kind, schema, where) for kind in sorted(allowed)])

    def _listed(self, value: object, where: str) -> str:
        text = format_value(value)
        read = read_call(f"call:f{{a:{text}}}")
        if read is None or read[0].arguments != {"a": value}:
            raise UnsupportedSchemaError(
                where, "the family cannot write a listed value"
            )
        return self._written(text)

    def _of(self, kind: str, schema: Schema, where: str) -> str:
        match kind:
            case "string":
                text = self._lark.until(QUOTE, *string_patterns(schema))
                return f"{self._lark.marker(QUOTE)} {text}"
            case "array":
                return self._items(schema, where)
            case "object":
                return self.members(schema, where)
            case _:
                words = keywords_of(kind) & schema.keys()
                rules = {key: schema[key] for key in schema if key in words}
                return self._lark.json({**rules, "type": kind})

    def _items(self, schema: Schema, where: str) -> str:
        low, high = bounds(schema, "minItems", "maxItems")
        if isinstance(high, int) and high < low:
            raise UnsupportedSchemaError(where, UNSATISFIABLE)
        if high == 0 or (schema.get("items") is False and not low):
            return '"[]"'
        items = SchemaNode(schema.get("items", True), f"{where}/items")
        item = self._lark.rule(self.value(items))
        most = high - 1 if isinstance(high, int) else ""
        several = f'{item} ("," {item}){{{max(low - 1, 0)},{most}}}'
        return f'"[" {several} "]"' if low else f'"[" ({several})? "]"'

    def members(self, schema: Schema, where: str) -> str:
        """Match an object."""
        listed, others = object_properties(schema, where)
        if others is not None and not listed:
            return self._any_members(others)
        first = then = '""'  # what may follow a member, and what may begin
        for each in sorted(listed, key=lambda each: each.name.lower(), reverse=True):
            member = self._lark.rule(self._member(each))
            following = f'"," {member} {then}'
            beginning = f"{member} {then}"
            if not each.is_required:
                following = f"({following} | {then})"
                beginning = f"({beginning} | {first})"
            first, then = self._lark.rule(beginning), self._lark.rule(following)
        return f'"{{" {first} "}}"'

    def _member(self, member: Property) -> str:
        name = member.name
        if QUOTE in name:
            why = "the family cannot write its name"
            raise UnsupportedSchemaError(member.value.pointer, why)
        key = name if re.fullmatch(BARE_KEY, name) else format_value(name)
        return f"{self._written(f'{key}:')} {self.value(member.value)}"

    def _written(self, text: str) -> str:
        """Match a text in which quotes alone are markers."""
        *quoted, rest = text.split(QUOTE)
        parts = [self._lark.marker(QUOTE, after=each) for each in quoted]
        return " ".join([*parts, self._lark.text(rest)] if rest else parts)

    def _anything(self) -> str:
        if self._any is None:
            self._any = self._lark.recursive(self._every_kind)
        return self._any

    def _every_kind(self, name: str) -> str:
        self._any = name
        return one_of(
            [self._of(each, {}, "") for each in sorted(JSON_TYPES - {"integer"})]
        )

    def _any_members(self, others: SchemaNode) -> str:
        key = self._lark.pattern(BARE_KEY)
        member = self._lark.rule(f'{key} ":" {self.value(others)}')
        return f'"{{" ({member} ("," {member})*)? "}}"'
