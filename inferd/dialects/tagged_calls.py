"""Calls as Qwen3-Coder writes them: a name and arguments between tags, and no JSON.

Source: the chat templates of Qwen3-Coder-30B-A3B-Instruct and Qwen3.5-4B.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from inferd.dialects.dialect import Arguments, Call
from inferd.dialects.effort import TooMuchWorkError, bounded
from inferd.dialects.json_calls import checked, plain_json, value_end
from inferd.dialects.schemas import (
    Schema,
    arguments_schema,
    decoded,
    kinds,
    kinds_of,
    properties,
)
from inferd.dialects.turns import to_json
from inferd.job import Tool, ToolCall
from inferd.limits import EFFORT_READING, EFFORT_STEPS_PER_BYTE

BEGIN: Final = "<function="
END: Final = "</tool_call>"
PARAMETER: Final = "<parameter="
HEAD_END: Final = ">\n"
VALUE_END: Final = "\n</parameter>\n"
NAME: Final = r"[^>\n]+"
"""A name of a tool or an argument, as a regular expression."""
PARAMETER_END: Final = r"</parameter>[\s\x1c-\x1f]*<(?:parameter=|/function>)"
"""What a text cannot hold without ending there, as a regular expression."""
_NEXT_FUNCTION: Final = re.compile(rf"\s*<function=({NAME})>\s*")
_NEXT_PARAMETER: Final = re.compile(rf"<parameter=({NAME})>\n?")
_VALUE_END: Final = re.compile(rf"\n?(?={PARAMETER_END})</parameter>\s*")
_FUNCTION_END: Final = re.compile(r"</function>\s*")
_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}
"""What the templates write of these, and so what models write."""


def call_text(call: ToolCall) -> str:
    """Write a call that was made."""
    arguments = decoded(call.arguments)
    given = arguments if isinstance(arguments, dict) else {"value": arguments}
    parts = [
        f"<parameter={name}>\n{bare(value)}{VALUE_END}" for name, value in given.items()
    ]
    begin = f"<tool_call>\n{BEGIN}{call.name}>\n"
    return f"{begin}{''.join(parts)}</function>\n{END}"


def bare(value: object) -> str:
    """Write a value as templates do: what is not JSON's own looks as in Python."""
    return to_json(value) if isinstance(value, (dict, list)) else str(value)


def read_calls(text: str, tools: Sequence[Tool]) -> Sequence[Call] | None:
    """Read a call or several.

    An argument is text, without the newline on each side of it. Whether that is a string
    or JSON, the tool's schema says; where it is silent, JSON that is no string is JSON,
    and all else is a string.
    """
    by_name = {tool.name: tool for tool in tools}
    try:
        with bounded(EFFORT_READING + EFFORT_STEPS_PER_BYTE * len(text)):
            return [*_calls_in(text, by_name)]
    except (ValueError, RecursionError, TooMuchWorkError):
        return None


def _calls_in(text: str, tools: Mapping[str, Tool]) -> Iterator[Call]:
    schemas: dict[str, Schema] = {}  # each is read once, however often it is called
    at = 0
    while at == 0 or at < len(text):
        head = _found(_NEXT_FUNCTION, text, at)
        if head[1] in tools and head[1] not in schemas:
            schemas[head[1]] = arguments_schema(tools[head[1]])
        schema = schemas.get(head[1], {})
        arguments: Arguments = {}
        at = head.end()
        while given := _NEXT_PARAMETER.match(text, at):
            end = _value_end(text, given.end())
            others = schema.get("additionalProperties")
            allowed = kinds(properties(schema).get(given[1], others), schema)
            if given[1] in arguments:
                raise ValueError("an argument twice")
            value = value_of(text[given.end() : end.start()], allowed)
            arguments[given[1]] = value
            at = end.end()
        at = _found(_FUNCTION_END, text, at).end()
        yield checked(head[1], arguments)


def _found(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    found = pattern.match(text, at)
    if found is None:
        raise ValueError("not plainly a call")
    return found


def _value_end(text: str, at: int) -> re.Match[str]:
    """Find where a value ends: JSON may hold tags in its strings, text may not."""
    if text[at : at + 1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            if found := _VALUE_END.match(text, value_end(text, at)):
                return found
    found = _VALUE_END.search(text, at)
    if found is None:
        raise ValueError("an argument without an end")
    return found


def value_of(text: str, allowed: frozenset[str]) -> object:
    """Read a value of one of these kinds.

    Raises:
        ValueError: it has to be JSON, and is none; or it is JSON that has a key twice.
    """
    if "string" not in allowed:
        return plain_json(_PYTHON.get(text, text), object)
    try:
        value: object = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    if not kinds_of(value) & (allowed - {"string"}):
        return text
    return plain_json(text, object)
