"""Grammar of Qwen3-Coder's tool calls, constrained by the schemas of the tools.

An argument is text or JSON, depending on its schema. If both are allowed, text that is valid
JSON of an allowed type is parsed as JSON, so no further keywords can be enforced for such a
type.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from inferd.backend.job import ToolSpec
from inferd.dialects.calls.tagged_syntax import (
    BEGIN,
    END,
    HEAD_END,
    NAME,
    PARAMETER,
    PARAMETER_END,
    VALUE_END,
    parse_value,
)
from inferd.dialects.lark import LarkBuilder, one_of, one_or_more_calls
from inferd.dialects.rendering import to_json
from inferd.dialects.schema.arguments import supported_arguments_schema
from inferd.dialects.schema.reader import (
    Schema,
    allowed_types,
    standalone,
    string_patterns,
)
from inferd.dialects.schema.subset import (
    Property,
    SchemaNode,
    UnsupportedSchemaError,
    alternative_nodes,
    check_supported,
    follow_refs,
    keywords_of,
    listed_values,
    object_properties,
    refuse_external_refs,
)
from inferd.dialects.step_limit import step

_UNSAFE: Final = (re.escape(END), PARAMETER_END)
"""Patterns that text cannot contain, as they would end the call or the argument."""
_PLAIN: Final = {
    "integer": r"-?(?:0|[1-9][0-9]*)",
    "number": r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?",
    "boolean": "true|false",
    "null": "null",
}
_NESTED: Final = frozenset({"array", "object"})
_READING_A_VALUE: Final = 8
"""Steps charged for checking that a listed value is parsed as itself."""
_NOT_NESTED: Final = r"\s*(?:[^\s\[{](?s:.*))?"
"""Text that does not begin as an array or an object does."""


class _Branch(NamedTuple):
    """One of the schemas of an argument that may be text."""

    schema: Schema
    where: str
    kinds: frozenset[str]
    """What it allows, unless it lists values."""
    limited: frozenset[str]
    """Those of them that it says more of."""
    listed: list[object]


def write_calls(lark: LarkBuilder, tools: Sequence[ToolSpec]) -> str:
    """Return the expression for calls, with arguments in the order of the schema.

    Raises:
        UnsupportedSchemaError: a schema cannot be enforced.
    """
    call = one_of([_write_call(lark, each) for each in tools])
    begin, end = lark.marker("<tool_call>\n"), lark.marker(f"</function>\n{END}")
    return one_or_more_calls(lark, f"{begin} {call} {end}", "\n")


def _write_call(lark: LarkBuilder, tool: ToolSpec) -> str:
    schema, where, root = supported_arguments_schema(tool)
    if unwritable := sorted({"const", "enum"} & schema.keys()):
        raise SchemaNode(schema, where).unsupported(*unwritable)
    listed, others = object_properties(schema, where)
    writer = _Writer(lark, root)
    begin = f"{lark.marker(BEGIN)} {lark.marker(HEAD_END, after=tool.name)}"
    parts = [begin, *map(writer.argument, listed)]
    if others is not None:
        name = f"{lark.marker(PARAMETER)} {lark.pattern(NAME)}"
        parts.append(f"({name} {lark.marker(HEAD_END)} {writer.value(others)})*")
    return " ".join(parts)


class _Writer:
    """Builds expressions for the arguments that a schema allows.

    Args:
        lark: the grammar.
        root: the schema that references lead into.
    """

    def __init__(self, lark: LarkBuilder, root: Schema) -> None:
        self._lark = lark
        self._root = root

    def argument(self, member: Property) -> str:
        """Match an argument between its tags, or nothing where it may be left out."""
        if not re.fullmatch(NAME, member.name):
            why = "the family cannot write its name"
            raise UnsupportedSchemaError(member.value.pointer, why)
        name = self._lark.marker(HEAD_END, after=member.name)
        begin = f"{self._lark.marker(PARAMETER)} {name}"
        argument = f"{begin} {self.value(member.value)}"
        return argument if member.is_required else f"({argument})?"

    def value(self, part: SchemaNode) -> str:
        """Match a value up to the end of its argument."""
        allowed = allowed_types(part.schema, self._root)
        if "string" not in allowed:
            return self._json(*follow_refs(part, self._root))
        branches = [*self._branches(part, set())]
        is_free = any(map(_is_any_text, branches))
        is_apart = not is_free or any(_NESTED & each.limited for each in branches)
        found = [text for each in branches for text in self._listed(each, allowed)]
        for each in branches:
            if "string" in each.kinds:
                apart = [_NOT_NESTED] if is_apart and allowed & _NESTED else []
                found.append(self._text(*string_patterns(each.schema), *apart))
            if not is_free:
                found += [
                    self._text(_PLAIN[kind]) for kind in each.kinds & _PLAIN.keys()
                ]
            if is_apart and (nested := sorted(each.kinds & _NESTED)):
                found.append(self._json({**each.schema, "type": nested}, each.where))
        return one_of(found)

    def _branches(self, part: SchemaNode, seen: set[int]) -> Iterator[_Branch]:
        """Return all alternatives of a schema, without duplicates.

        Args:
            part: the schema.
            seen: ids of alternatives already returned, to which references may lead.
        """
        schema, where = check_supported(part, self._root)
        if id(schema) in seen:
            return
        seen.add(id(schema))
        given = alternative_nodes(schema, where)
        for each in given or ():
            yield from self._branches(each, seen)
        if given is None:
            listed = listed_values(schema, where)
            own = (
                allowed_types(schema, self._root)
                if listed is None
                else frozenset[str]()
            )
            limited = frozenset(
                each for each in own if keywords_of(each) & schema.keys()
            )
            if numeric := limited & _PLAIN.keys():
                words = frozenset[str]().union(*map(keywords_of, numeric))
                raise SchemaNode(schema, where).unsupported(
                    *sorted(words & schema.keys())
                )
            yield _Branch(schema, where, own, limited, listed or [])

    def _listed(self, branch: _Branch, allowed: frozenset[str]) -> Iterator[str]:
        for each in branch.listed:
            step(_READING_A_VALUE)
            text = each if isinstance(each, str) else to_json(each)
            if not _is_read_as(each, text, allowed):
                why = "the family cannot write a listed value"
                raise UnsupportedSchemaError(branch.where, why)
            yield self._lark.marker(VALUE_END, after=text)

    def _text(self, *likes: str) -> str:
        return self._lark.until(VALUE_END, *likes, without=_UNSAFE)

    def _json(self, schema: object, where: str) -> str:
        whole = standalone(schema, self._root)
        refuse_external_refs(whole, where)
        value = self._lark.json(whole)
        return f"{value} {self._lark.marker(VALUE_END)}"


def _is_any_text(branch: _Branch) -> bool:
    return "string" in branch.kinds - branch.limited


def _is_read_as(value: object, text: str, allowed: frozenset[str]) -> bool:
    """Return whether a text is parsed as this value if these types are allowed."""
    if isinstance(value, str) and any(re.search(each, text) for each in _UNSAFE):
        return False
    if VALUE_END in f"{text}{VALUE_END}"[:-1]:
        return False
    try:
        read = parse_value(text, allowed)
    except (ValueError, RecursionError):
        return False
    return read == value and type(read) is type(value)
