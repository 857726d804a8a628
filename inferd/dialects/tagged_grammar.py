"""The grammar of Qwen3-Coder's calls, held to the schemas of tools.

An argument is text or JSON, as its schema says. Where it may be either, text that is JSON
of a kind that is allowed is read as that: so such a kind cannot be held to more.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from inferd.dialects.arguments import arguments_held
from inferd.dialects.effort import step
from inferd.dialects.enforced import (
    Member,
    Placed,
    UnenforceableError,
    checked,
    choices,
    followed,
    keywords_of,
    listed_values,
    members,
    refuse_references,
)
from inferd.dialects.lark import Lark, either, in_a_row
from inferd.dialects.schemas import (
    Schema,
    alone,
    kinds,
    text_likes,
)
from inferd.dialects.tagged_calls import (
    BEGIN,
    END,
    HEAD_END,
    NAME,
    PARAMETER,
    PARAMETER_END,
    VALUE_END,
    value_of,
)
from inferd.dialects.turns import to_json
from inferd.job import Tool

_UNSAFE: Final = (re.escape(END), PARAMETER_END)
"""What no text can hold: it would end the call, or the argument."""
_PLAIN: Final = {
    "integer": r"-?(?:0|[1-9][0-9]*)",
    "number": r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?",
    "boolean": "true|false",
    "null": "null",
}
_NESTED: Final = frozenset({"array", "object"})
_READING_A_VALUE: Final = 8
"""Steps to see that a listed value is read as what it is."""
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


def write_calls(lark: Lark, tools: Sequence[Tool]) -> str:
    """Give the expression for one call or more, arguments in the order of the schema.

    Raises:
        UnenforceableError: a schema cannot be held to.
    """
    call = either([_write_call(lark, each) for each in tools])
    begin, end = lark.marker("<tool_call>\n"), lark.marker(f"</function>\n{END}")
    return in_a_row(lark, f"{begin} {call} {end}", "\n")


def _write_call(lark: Lark, tool: Tool) -> str:
    schema, where, root = arguments_held(tool)
    if unwritable := sorted({"const", "enum"} & schema.keys()):
        raise Placed(schema, where).refused(*unwritable)
    listed, others = members(schema, where)
    writer = _Writer(lark, root)
    begin = f"{lark.marker(BEGIN)} {lark.marker(HEAD_END, after=tool.name)}"
    parts = [begin, *map(writer.argument, listed)]
    if others is not None:
        name = f"{lark.marker(PARAMETER)} {lark.pattern(NAME)}"
        parts.append(f"({name} {lark.marker(HEAD_END)} {writer.value(others)})*")
    return " ".join(parts)


class _Writer:
    """Gives expressions for arguments that a schema allows.

    Args:
        lark: the grammar.
        root: the schema that references lead into.
    """

    def __init__(self, lark: Lark, root: Schema) -> None:
        self._lark = lark
        self._root = root

    def argument(self, member: Member) -> str:
        """Match an argument between its tags, or nothing where it may be left out."""
        if not re.fullmatch(NAME, member.name):
            why = "the family cannot write its name"
            raise UnenforceableError(member.value.where, why)
        name = self._lark.marker(HEAD_END, after=member.name)
        begin = f"{self._lark.marker(PARAMETER)} {name}"
        argument = f"{begin} {self.value(member.value)}"
        return argument if member.is_needed else f"({argument})?"

    def value(self, part: Placed) -> str:
        """Match a value up to the end of its argument."""
        allowed = kinds(part.schema, self._root)
        if "string" not in allowed:
            return self._json(*followed(part, self._root))
        branches = [*self._branches(part, set())]
        is_free = any(map(_is_any_text, branches))
        is_apart = not is_free or any(_NESTED & each.limited for each in branches)
        found = [text for each in branches for text in self._listed(each, allowed)]
        for each in branches:
            if "string" in each.kinds:
                apart = [_NOT_NESTED] if is_apart and allowed & _NESTED else []
                found.append(self._text(*text_likes(each.schema), *apart))
            if not is_free:
                found += [
                    self._text(_PLAIN[kind]) for kind in each.kinds & _PLAIN.keys()
                ]
            if is_apart and (nested := sorted(each.kinds & _NESTED)):
                found.append(self._json({**each.schema, "type": nested}, each.where))
        return either(found)

    def _branches(self, part: Placed, seen: set[int]) -> Iterator[_Branch]:
        """Give all schemas of which one has to fit, each once.

        Args:
            part: that they are of.
            seen: those that were given, which references may lead to again.
        """
        schema, where = checked(part, self._root)
        if id(schema) in seen:
            return
        seen.add(id(schema))
        given = choices(schema, where)
        for each in given or ():
            yield from self._branches(each, seen)
        if given is None:
            listed = listed_values(schema, where)
            own = kinds(schema, self._root) if listed is None else frozenset[str]()
            limited = frozenset(
                each for each in own if keywords_of(each) & schema.keys()
            )
            if numeric := limited & _PLAIN.keys():
                words = frozenset[str]().union(*map(keywords_of, numeric))
                raise Placed(schema, where).refused(*sorted(words & schema.keys()))
            yield _Branch(schema, where, own, limited, listed or [])

    def _listed(self, branch: _Branch, allowed: frozenset[str]) -> Iterator[str]:
        for each in branch.listed:
            step(_READING_A_VALUE)
            text = each if isinstance(each, str) else to_json(each)
            if not _is_read_as(each, text, allowed):
                why = "the family cannot write a listed value"
                raise UnenforceableError(branch.where, why)
            yield self._lark.marker(VALUE_END, after=text)

    def _text(self, *likes: str) -> str:
        return self._lark.until(VALUE_END, *likes, without=_UNSAFE)

    def _json(self, schema: object, where: str) -> str:
        whole = alone(schema, self._root)
        refuse_references(whole, where)
        value = self._lark.json(whole)
        return f"{value} {self._lark.marker(VALUE_END)}"


def _is_any_text(branch: _Branch) -> bool:
    return "string" in branch.kinds - branch.limited


def _is_read_as(value: object, text: str, allowed: frozenset[str]) -> bool:
    """Tell whether a text is read as a value where these kinds are allowed."""
    if isinstance(value, str) and any(re.search(each, text) for each in _UNSAFE):
        return False
    if VALUE_END in f"{text}{VALUE_END}"[:-1]:
        return False
    try:
        read = value_of(text, allowed)
    except (ValueError, RecursionError):
        return False
    return read == value and type(read) is type(value)
