"""Dialect of Llama 3.1, 3.2 and 3.3: calls are JSON, and the answer contains nothing else.

Sources: the chat templates of the three; Meta's ``prompt_format.md`` of each.
"""

import re
from collections.abc import Sequence
from itertools import product
from typing import Final

from inferd.backend.job import ToolSpec, Turn
from inferd.dialects.calls.json_syntax import (
    read_calls,
    read_cut_calls,
    write_any_call,
)
from inferd.dialects.dialect import Dialect, ParsedCall, Region
from inferd.dialects.lark import LarkBuilder, one_or_more_calls
from inferd.dialects.rendering import (
    arguments_of,
    declaration,
    split_parallel_calls,
    to_json,
)
from inferd.dialects.schema.reader import parse_json_strict

_PYTHON_TAG: Final = "<|python_tag|>"
_KEYS: Final = ('"name"', '"type": "function"', '"type":"function"')
_GAPS: Final = ("", " ", "\n", "\n ", "\n  ", "\n    ", "\n\t")
_SEMICOLON: Final = re.compile(r';\s*(?=\{\s*"(?:name|type)")')
"""Separator of calls. It cannot occur in a JSON string, where its quotes are escaped."""
_HEAD_CHARS: Final = 4096
"""Characters within which a call must reach its arguments; a name has far fewer."""
_BEFORE: Final = ("name", "type", "id")
_ARGUMENTS: Final = ("parameters", "arguments")
_KEY: Final = re.compile(r'\s*"(\w*)"\s*:\s*')
_KEY_BEGUN: Final = re.compile(r'\s*(?:"(\w*)(?:"\s*)?)?')
_VALUE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\w.+-]+(?=[\s,}])', re.DOTALL)
_VALUE_BEGUN: Final = re.compile(r'"(?:[^"\\]|\\.)*\\?|[\w.+-]*', re.DOTALL)
_COMMA: Final = re.compile(r"\s*,")

_HEAD: Final = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
"""With the fallback date of the templates: a changing date would invalidate caches."""
_INSTRUCTIONS: Final = (
    "Given the following functions, please respond with a JSON for a function call with "
    "its proper arguments that best answers the given prompt.\n\n"
    'Respond in the format {"name": function name, "parameters": dictionary of argument '
    "name and its value}.Do not use variables.\n\n"
)


def _render(turns: Sequence[Turn], tools: Sequence[ToolSpec], _thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    head = "Environment: ipython\n" + _HEAD if tools else _HEAD
    if turns and turns[0].role == "system":
        head += turns[0].text.strip()
        turns = turns[1:]
    parts = [_message("system", head)]
    given = _given(tools)
    if given and all(turn.role != "user" for turn in turns):
        turns = [Turn("user", ""), *turns]
    for turn in split_parallel_calls(turns):
        if turn.role == "user":
            parts.append(_message("user", given + turn.text.strip()))
            given = ""
        else:
            parts.append(_written(turn))
    return "".join(parts) + _header("assistant")


def _given(tools: Sequence[ToolSpec]) -> str:
    """Describe the tools, for the beginning of the first user turn."""
    if not tools:
        return ""
    texts = [to_json(declaration(tool), indent=4) for tool in tools]
    return _INSTRUCTIONS + "".join(f"{each}\n\n" for each in texts)


def _written(turn: Turn) -> str:
    if turn.role == "tool":
        return _message("ipython", to_json(turn.text))
    if turn.calls:  # text beside a call is dropped, as the templates do
        (call,) = turn.calls
        name = to_json(call.name)
        text = f'{{"name": {name}, "parameters": {arguments_of(call)}}}'
        return _message("assistant", text)
    return _message(turn.role, turn.text.strip())


def _message(role: str, text: str) -> str:
    return f"{_header(role)}{text}<|eot_id|>"


def _header(role: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n"


def _read(text: str, _tools: Sequence[ToolSpec]) -> Sequence[ParsedCall] | None:
    return read_calls(_SEMICOLON.sub("\n", text))


def _classify(text: str, tools: Sequence[ToolSpec]) -> bool | None:
    """Classify an answer that begins with a JSON object: a call, or text.

    It is a call if it reaches arguments, or has the name of an existing tool. It is text if
    anything comes before that calls do not have.
    """
    head = text[:_HEAD_CHARS]
    more = None if len(text) < _HEAD_CHARS else False
    at = 1
    while key := _KEY.match(head, at):
        if key[1] in _ARGUMENTS:
            return True
        value = _VALUE.match(head, key.end())
        if key[1] not in _BEFORE or value is None:
            value = _VALUE_BEGUN.fullmatch(head, key.end())
            return more if key[1] in _BEFORE and value else False
        if (
            verdict := _classify_value(key[1], parse_json_strict(value[0]), tools)
        ) is not None:
            return verdict
        if (comma := _COMMA.match(head, value.end())) is None:
            return more if not head[value.end() :].strip() else False
        at = comma.end()
    begun = _KEY_BEGUN.fullmatch(head, at)
    known = (*_BEFORE, *_ARGUMENTS)
    is_begun = begun and any(each.startswith(begun[1] or "") for each in known)
    return more if is_begun else False


def _classify_value(key: str, value: object, tools: Sequence[ToolSpec]) -> bool | None:
    """Classify by a value before the arguments."""
    match key:
        case "name" if value in [tool.name for tool in tools]:
            return True
        case "name" if not isinstance(value, str):
            return False
        case "type" if value != "function":
            return False
        case _:
            return None


def _write_calls(lark: LarkBuilder, tools: Sequence[ToolSpec]) -> str:
    calls = one_or_more_calls(lark, write_any_call(lark, tools, "parameters"), "; ")
    return f"({lark.marker(_PYTHON_TAG)})? {calls}"


def _recognises(_architecture: str, template: str) -> bool:
    return (
        "<|start_header_id|>" in template
        and "Environment: ipython" in template
        and "<function=" not in template  # Functionary's
    )


BARE_CALLS: Final = Region(
    holds="calls",
    begins=tuple(f"{{{gap}{key}" for gap, key in product(_GAPS, _KEYS)),
    only_first=True,
    keeps_begin=True,
    read=_read,
    read_cut=read_cut_calls,
    classify=_classify,
)
"""Calls that begin with no marker, as JSON at the beginning of an answer."""

LLAMA3: Final = Dialect(
    name="llama3",
    regions=(
        Region(
            holds="calls", begins=(_PYTHON_TAG,), read=_read, read_cut=read_cut_calls
        ),
        BARE_CALLS,
    ),
    render=_render,
    write_calls=_write_calls,
    recognises=_recognises,
)
