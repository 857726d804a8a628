"""Calls as Qwen3-Coder writes them: a name and arguments between tags, and no JSON.

Source: the chat templates of Qwen3-Coder-30B-A3B-Instruct and Qwen3.5-4B.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from inferd.dialects.dialect import Arguments, Call
from inferd.dialects.json_calls import checked
from inferd.dialects.lark import Lark, either, in_a_row
from inferd.dialects.schemas import (
    Schema,
    alone,
    arguments_schema,
    decoded,
    kinds,
    kinds_of,
    properties,
    required,
    resolved,
    text_like,
    values,
)
from inferd.dialects.turns import to_json
from inferd.job import Tool, ToolCall

BEGIN: Final = "<function="
END: Final = "</tool_call>"
VALUE_END: Final = "\n</parameter>\n"
_NAME: Final = r"[^>\n]+"
_NAME_END: Final = ">\n"
_NEXT_FUNCTION: Final = re.compile(r"\s*<function=([^>\n]+)>\s*")
_NEXT_PARAMETER: Final = re.compile(
    r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>(?=\s*<(?:parameter=|/function>))\s*",
    re.DOTALL,
)
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
        return [*_calls_in(text, by_name)]
    except (ValueError, RecursionError):
        return None


def _calls_in(text: str, tools: Mapping[str, Tool]) -> Iterator[Call]:
    at = 0
    while at == 0 or at < len(text):
        head = _found(_NEXT_FUNCTION, text, at)
        tool = tools.get(head[1])
        schema = arguments_schema(tool) if tool else {}
        arguments: Arguments = {}
        at = head.end()
        while given := _NEXT_PARAMETER.match(text, at):
            _add(arguments, given[1], given[2], schema)
            at = given.end()
        at = _found(_FUNCTION_END, text, at).end()
        yield checked(head[1], arguments)


def _found(pattern: re.Pattern[str], text: str, at: int) -> re.Match[str]:
    found = pattern.match(text, at)
    if found is None:
        raise ValueError("not plainly a call")
    return found


def _add(arguments: Arguments, name: str, text: str, schema: Schema) -> None:
    if name in arguments:
        raise ValueError("an argument given twice is not plain")
    allowed = kinds(properties(schema).get(name), schema)
    arguments[name] = _value(text, allowed)


def _value(text: str, allowed: frozenset[str]) -> object:
    """Read a value of one of these kinds."""
    if "string" not in allowed:
        given: object = msgspec.json.decode(_PYTHON.get(text, text))
        return given
    try:
        value: object = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text
    return value if kinds_of(value) & (allowed - {"string"}) else text


def write_calls(lark: Lark, tools: Sequence[Tool]) -> str:
    """Give the expression for one call or more, arguments in the order of the schema."""
    call = either([_write_call(lark, each) for each in tools])
    begin, end = lark.text("<tool_call>\n"), lark.text(f"</function>\n{END}")
    return in_a_row(lark, f"{begin} {call} {end}", "\n")


def _write_call(lark: Lark, tool: Tool) -> str:
    schema = arguments_schema(tool)
    needed = required(schema)
    parts = [lark.text(f"{BEGIN}{tool.name}>\n")]
    for name, each in properties(schema).items():
        argument = _write_argument(lark, name, each, schema)
        parts.append(argument if name in needed else f"({argument})?")
    if "properties" not in schema:
        begin = f"{lark.text('<parameter=')} {lark.pattern(_NAME)}"
        value = f"{lark.text(_NAME_END)} {lark.until(VALUE_END)}"
        parts.append(f"({begin} {value})*")
    return " ".join(parts)


def _write_argument(lark: Lark, name: str, schema: object, root: Schema) -> str:
    here = resolved(schema, root)
    begin = lark.text(f"<parameter={name}>\n")
    if "string" not in kinds(here, root):
        value = lark.json(alone(here, root))
        return f"{begin} {value} {lark.text(VALUE_END)}"
    listed = values(here)
    if listed is None:
        return f"{begin} {lark.until(VALUE_END, text_like(here))}"
    texts = [
        lark.text(each if isinstance(each, str) else to_json(each)) for each in listed
    ]
    return f"{begin} {either(texts)} {lark.text(VALUE_END)}"
