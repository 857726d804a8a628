"""Calls as JSON, which several families write: read, and held to while they are written.

Readers are strict: what is not plainly calls is none, and nothing is repaired. An object
that has a key twice means one thing to some readers and another to others: it is none.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from inferd.dialects.arguments import arguments_json
from inferd.dialects.dialect import Arguments, Call
from inferd.dialects.lark import Lark, either
from inferd.dialects.schemas import is_deeper
from inferd.dialects.turns import to_json
from inferd.job import Tool

TOOL_CALL_MAX_DEPTH: Final = 100
"""Objects and arrays inside each other in arguments. Common JSON readers stop at 128, of
which a frame takes two: what is deeper could not be read where it is sent."""

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_raw_decode: Final = json.JSONDecoder().raw_decode
_T = TypeVar("_T")


class WrittenCall(Struct, frozen=True):
    """A call as models write it; other fields are ignored."""

    name: str
    arguments: Arguments | str | None = None
    """An object, or the text of one."""
    parameters: Arguments | str | None = None
    """What some models call ``arguments``."""


def read_call(text: str) -> Call | None:
    """Read one call.

    Args:
        text: JSON, ``{"name": "f", "arguments": {}}``; or with ``parameters`` instead, or
            with the object as text. A call with both, or with neither, is not plain.
    """
    try:
        return _plain(plain_json(text, WrittenCall))
    except (ValueError, RecursionError):
        return None


def read_array(text: str, _tools: Sequence[Tool] = ()) -> tuple[Call, ...] | None:
    """Read an array of calls. An empty one is plain, too: no call was wanted."""
    try:
        return tuple(map(_plain, plain_json(text, list[WrittenCall])))
    except (ValueError, RecursionError):
        return None


def read_calls(text: str, _tools: Sequence[Tool] = ()) -> tuple[Call, ...] | None:
    """Read a call, an array of calls, or several calls with white space between them."""
    if text.lstrip().startswith("["):
        return read_array(text)
    calls: list[Call] = []
    for each in _values(text):
        call = read_call(each)
        if call is None:
            return None
        calls.append(call)
    return tuple(calls) or None


def plain_json(text: str, kind: type[_T]) -> _T:
    """Read JSON in which no object has a key twice.

    Raises:
        ValueError: it is none, or not of this kind.
        RecursionError: it is too deep.
    """
    value = msgspec.json.decode(text, type=kind)
    # Numbers stay text: Python refuses to read integers of thousands of digits.
    json.loads(text, object_pairs_hook=_distinct, parse_int=str, parse_float=str)
    return value


def _distinct(pairs: list[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key twice")


def value_end(text: str, at: int) -> int:
    """Find the end of a JSON value in a text.

    Raises:
        ValueError: there stands none.
    """
    return _raw_decode(text, at)[1]


def checked(name: str, arguments: Arguments) -> Call:
    """Make a call of what was read.

    Raises:
        ValueError: it has no name, or its arguments are too deep to be sent.
    """
    if not name or is_deeper(arguments, TOOL_CALL_MAX_DEPTH):
        raise ValueError("not plainly a call")
    return Call(name, arguments)


def write_call(lark: Lark, tool: Tool, key: str = "arguments") -> str:
    """Give the expression for a call of a tool as one object.

    Piece by piece, as any JSON: a grammar follows the longest piece that goes on, so one
    that is long would keep all other objects from being written in its place.

    Args:
        lark: the grammar, which rules are added to.
        tool: what is called.
        key: what the family calls ``arguments``.
    """
    pieces = ("{", '"name"', ": ", to_json(tool.name), ", ", f'"{key}"', ": ")
    begin = " ".join(map(lark.text, pieces))
    arguments = lark.json(arguments_json(tool))
    return f"{begin} {arguments} {lark.text('}')}"


def write_any_call(lark: Lark, tools: Sequence[Tool], key: str = "arguments") -> str:
    """Give the expression for a call of any of these tools as one object."""
    return either([write_call(lark, each, key) for each in tools])


def _plain(written: WrittenCall) -> Call:
    return checked(written.name, _arguments(written))


def _arguments(call: WrittenCall) -> Arguments:
    given = [each for each in (call.arguments, call.parameters) if each is not None]
    match given:
        case [str() as text]:
            return plain_json(text, Arguments)
        case [dict() as arguments]:
            return arguments
        case _:
            raise ValueError("arguments once, not twice and not never")


def _values(text: str) -> Iterator[str]:
    """Cut a text into the JSON values that it holds; the rest of it, where it is none.

    One after the other: who finds one that is no call needs no more of them.
    """
    at = _after_space(text, 0)
    while at < len(text):
        try:
            end = value_end(text, at)
        except (ValueError, RecursionError):
            end = len(text)
        yield text[at:end]
        at = _after_space(text, end)


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at
