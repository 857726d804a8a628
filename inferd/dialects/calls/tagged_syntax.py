"""Qwen3-Coder's syntax of tool calls: a name and arguments between tags, not JSON.

Source: the chat templates of Qwen3-Coder-30B-A3B-Instruct and Qwen3.5-4B.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from inferd.backend.job import PastCall, ToolSpec
from inferd.dialects.calls.json_syntax import make_call, strict_json, value_end
from inferd.dialects.dialect import Arguments, ParsedCall
from inferd.dialects.rendering import to_json
from inferd.dialects.schema.reader import (
    Schema,
    allowed_types,
    arguments_schema,
    parse_json_strict,
    properties,
    types_of,
)
from inferd.dialects.step_limit import TooMuchWorkError, limited_steps
from inferd.limits.prompts import CALL_PARSE_STEPS, TRANSLATION_STEPS_PER_BYTE

BEGIN: Final = "<function="
END: Final = "</tool_call>"
PARAMETER: Final = "<parameter="
HEAD_END: Final = ">\n"
VALUE_END: Final = "\n</parameter>\n"
NAME: Final = r"[^>\n]+"
"""A name of a tool or an argument, as a regular expression."""
PARAMETER_END: Final = r"</parameter>[\s\x1c-\x1f]*<(?:parameter=|/function>)"
"""The end of an argument, as a regular expression; text cannot contain it."""
_NEXT_FUNCTION: Final = re.compile(rf"\s*<function=({NAME})>\s*")
_NEXT_PARAMETER: Final = re.compile(rf"<parameter=({NAME})>\n?")
_VALUE_END: Final = re.compile(rf"\n?(?={PARAMETER_END})</parameter>\s*")
_FUNCTION_END: Final = re.compile(r"</function>\s*")
_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}
"""Python's spelling of JSON words, which templates use and so do models."""


def format_call(call: PastCall) -> str:
    """Format an earlier call for the prompt."""
    arguments = parse_json_strict(call.arguments)
    given = arguments if isinstance(arguments, dict) else {"value": arguments}
    parts = [
        f"<parameter={name}>\n{format_value(value)}{VALUE_END}"
        for name, value in given.items()
    ]
    begin = f"<tool_call>\n{BEGIN}{call.name}>\n"
    return f"{begin}{''.join(parts)}</function>\n{END}"


def format_value(value: object) -> str:
    """Format a value as templates do: objects and arrays as JSON, others as in Python."""
    return to_json(value) if isinstance(value, (dict, list)) else str(value)


def read_calls(text: str, tools: Sequence[ToolSpec]) -> Sequence[ParsedCall] | None:
    """Parse one or several calls; return ``None`` if the text is not valid.

    An argument is text without one newline on both sides. The tool's schema decides whether
    it is a string or JSON. Without a schema, valid JSON other than a string is JSON, and all
    else is a string.
    """
    by_name = {tool.name: tool for tool in tools}
    try:
        with limited_steps(CALL_PARSE_STEPS + TRANSLATION_STEPS_PER_BYTE * len(text)):
            return [*_calls_in(text, by_name)]
    except (ValueError, RecursionError, TooMuchWorkError):
        return None


def _calls_in(text: str, tools: Mapping[str, ToolSpec]) -> Iterator[ParsedCall]:
    schemas: dict[str, Schema] = {}  # parsed once, however often a tool is called
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
            allowed = allowed_types(properties(schema).get(given[1], others), schema)
            if given[1] in arguments:
                raise ValueError("an argument twice")
            value = parse_value(text[given.end() : end.start()], allowed)
            arguments[given[1]] = value
            at = end.end()
        at = _found(_FUNCTION_END, text, at).end()
        yield make_call(head[1], arguments)


def _found(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    found = pattern.match(text, at)
    if found is None:
        raise ValueError("not plainly a call")
    return found


def _value_end(text: str, at: int) -> re.Match[str]:
    """Find the end of a value: JSON may contain tags in its strings, text may not."""
    if text[at : at + 1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            if found := _VALUE_END.match(text, value_end(text, at)):
                return found
    found = _VALUE_END.search(text, at)
    if found is None:
        raise ValueError("an argument without an end")
    return found


def parse_value(text: str, allowed: frozenset[str]) -> object:
    """Parse a value of one of the allowed types.

    Raises:
        ValueError: it must be JSON and is not, or it is JSON with a duplicate key.
    """
    if "string" not in allowed:
        return strict_json(_PYTHON.get(text, text), object)
    try:
        value: object = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    if not types_of(value) & (allowed - {"string"}):
        return text
    return strict_json(text, object)
