"""Tool calls as JSON, the syntax of several families: parsers and grammar expressions.

Parsers are strict: nothing is repaired. An object with a duplicate key is invalid, as JSON
parsers disagree about its meaning.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from inferd.backend.job import ToolSpec
from inferd.dialects.dialect import Arguments, ParsedCall
from inferd.dialects.lark import LarkBuilder, one_of
from inferd.dialects.rendering import to_json
from inferd.dialects.schema.arguments import full_arguments_schema
from inferd.dialects.schema.reader import is_deeper_than

TOOL_CALL_MAX_DEPTH: Final = 100
"""Nesting depth of arguments. Common JSON parsers stop at 128, of which a frame takes two,
so clients could not parse deeper ones."""

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_BETWEEN: Final = re.compile(r"[ \t\r\n\[,;]*")
"""What may come before a call in an array, or between calls."""
_raw_decode: Final = json.JSONDecoder().raw_decode
_T = TypeVar("_T")


class JsonCall(Struct, frozen=True):
    """A call as models generate it; other fields are ignored."""

    name: str
    arguments: Arguments | str | None = None
    """An object, or the text of one."""
    parameters: Arguments | str | None = None
    """What some models write instead of ``arguments``."""


def read_call(text: str) -> ParsedCall | None:
    """Parse one call; return ``None`` if it is not valid.

    Args:
        text: JSON, ``{"name": "f", "arguments": {}}``; or with ``parameters`` instead, or
            with the object as a string. A call with both, or with neither, is invalid.
    """
    try:
        return _plain(strict_json(text, JsonCall))
    except (ValueError, RecursionError):
        return None


def read_call_array(
    text: str, _tools: Sequence[ToolSpec] = ()
) -> tuple[ParsedCall, ...] | None:
    """Parse an array of calls. An empty one is valid: the model wants no call."""
    try:
        return tuple(map(_plain, strict_json(text, list[JsonCall])))
    except (ValueError, RecursionError):
        return None


def read_calls(
    text: str, _tools: Sequence[ToolSpec] = ()
) -> tuple[ParsedCall, ...] | None:
    """Parse a call, an array of calls, or several calls separated by white space."""
    if text.lstrip().startswith("["):
        return read_call_array(text)
    calls: list[ParsedCall] = []
    for each in _values(text):
        call = read_call(each)
        if call is None:
            return None
        calls.append(call)
    return tuple(calls) or None


def read_cut_calls(text: str) -> tuple[list[ParsedCall], str]:
    """Parse the complete calls at the beginning of a cut text, and return the rest.

    Args:
        text: an array of calls, or calls separated by semicolons or white space.
    """
    calls: list[ParsedCall] = []
    at = _after(_BETWEEN, text, 0)
    while (found := _call_at(text, at)) is not None:
        call, end = found
        calls.append(call)
        at = _after(_BETWEEN, text, end)
    return calls, text[at:].removeprefix("]")


def _call_at(text: str, at: int) -> tuple[ParsedCall, int] | None:
    """Parse the call at an index, if it is complete; return the index after it, too."""
    try:
        end = value_end(text, at)
    except (ValueError, RecursionError):
        return None
    call = read_call(text[at:end])
    return None if call is None else (call, end)


def strict_json(text: str, kind: type[_T]) -> _T:
    """Parse JSON without duplicate keys.

    Raises:
        ValueError: it is not JSON, not of this type, or has a duplicate key.
        RecursionError: it is nested too deeply.
    """
    value = msgspec.json.decode(text, type=kind)
    # Numbers stay strings: Python rejects integers of thousands of digits.
    json.loads(text, object_pairs_hook=_distinct, parse_int=str, parse_float=str)
    return value


def _distinct(pairs: list[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key twice")


def value_end(text: str, at: int) -> int:
    """Return the index after a JSON value in a text.

    Raises:
        ValueError: there is no JSON value at this index.
    """
    return _raw_decode(text, at)[1]


def make_call(name: str, arguments: Arguments) -> ParsedCall:
    """Make a call from its parsed parts.

    Raises:
        ValueError: it has no name, or its arguments are nested too deeply.
    """
    if not name or is_deeper_than(arguments, TOOL_CALL_MAX_DEPTH):
        raise ValueError("not plainly a call")
    return ParsedCall(name, arguments)


def write_call(lark: LarkBuilder, tool: ToolSpec, key: str = "arguments") -> str:
    """Return the expression for a call of a tool as one JSON object.

    It has short terminals, as any JSON: the lexer prefers the longest terminal, so a long
    one would exclude all other objects at its position.

    Args:
        lark: the grammar, to which rules are added.
        tool: the tool.
        key: the family's name for ``arguments``.
    """
    pieces = ("{", '"name"', ": ", to_json(tool.name), ", ", f'"{key}"', ": ")
    begin = " ".join(map(lark.text, pieces))
    arguments = lark.json(full_arguments_schema(tool))
    return f"{begin} {arguments} {lark.text('}')}"


def write_any_call(
    lark: LarkBuilder, tools: Sequence[ToolSpec], key: str = "arguments"
) -> str:
    """Return the expression for a call of any of these tools as one JSON object."""
    return one_of([write_call(lark, each, key) for each in tools])


def _plain(written: JsonCall) -> ParsedCall:
    return make_call(written.name, _arguments(written))


def _arguments(call: JsonCall) -> Arguments:
    given = [each for each in (call.arguments, call.parameters) if each is not None]
    match given:
        case [str() as text]:
            return strict_json(text, Arguments)
        case [dict() as arguments]:
            return arguments
        case _:
            raise ValueError("arguments once, not twice and not never")


def _values(text: str) -> Iterator[str]:
    """Split a text lazily into its JSON values; the last part may be invalid."""
    at = _after(_SPACE, text, 0)
    while at < len(text):
        try:
            end = value_end(text, at)
        except (ValueError, RecursionError):
            end = len(text)
        yield text[at:end]
        at = _after(_SPACE, text, end)


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
