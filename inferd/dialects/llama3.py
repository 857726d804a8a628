"""How Llama 3.1, 3.2 and 3.3 write: a call is JSON, and the answer holds nothing else.

Sources: the chat templates of the three; Meta's ``prompt_format.md`` of each.
"""

import re
from collections.abc import Sequence
from itertools import product
from typing import Final

from inferd.dialects.dialect import Call, Dialect, Region
from inferd.dialects.json_calls import read_calls, write_any_call
from inferd.dialects.lark import Lark, in_a_row
from inferd.dialects.schemas import decoded
from inferd.dialects.turns import arguments_of, declaration, one_call_each, to_json
from inferd.job import Tool, Turn

_PYTHON_TAG: Final = "<|python_tag|>"
_KEYS: Final = ('"name"', '"type": "function"', '"type":"function"')
_GAPS: Final = ("", " ", "\n", "\n ", "\n  ", "\n    ", "\n\t")
_SEMICOLON: Final = re.compile(r';\s*(?=\{\s*"(?:name|type)")')
"""Between two calls. In a string of JSON it cannot stand: its quotes would be escaped."""
_HEAD_CHARS: Final = 4096
"""In which a call has come to its arguments: its name has a fraction of that."""
_BEFORE: Final = ("name", "type", "id")
_ARGUMENTS: Final = ("parameters", "arguments")
_KEY: Final = re.compile(r'\s*"(\w*)"\s*:\s*')
_KEY_BEGUN: Final = re.compile(r'\s*(?:"(\w*)(?:"\s*)?)?')
_VALUE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\w.+-]+(?=[\s,}])', re.DOTALL)
_VALUE_BEGUN: Final = re.compile(r'"(?:[^"\\]|\\.)*\\?|[\w.+-]*', re.DOTALL)
_COMMA: Final = re.compile(r"\s*,")

_HEAD: Final = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
"""With the date that templates fall back on: one that changes would spoil caches."""
_INSTRUCTIONS: Final = (
    "Given the following functions, please respond with a JSON for a function call with "
    "its proper arguments that best answers the given prompt.\n\n"
    'Respond in the format {"name": function name, "parameters": dictionary of argument '
    "name and its value}.Do not use variables.\n\n"
)


def _render(turns: Sequence[Turn], tools: Sequence[Tool], _thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    head = "Environment: ipython\n" + _HEAD if tools else _HEAD
    if turns and turns[0].role == "system":
        head += turns[0].text.strip()
        turns = turns[1:]
    parts = [_message("system", head)]
    given = _given(tools)
    if given and all(turn.role != "user" for turn in turns):
        turns = [Turn("user", ""), *turns]
    for turn in one_call_each(turns):
        if turn.role == "user":
            parts.append(_message("user", given + turn.text.strip()))
            given = ""
        else:
            parts.append(_written(turn))
    return "".join(parts) + _header("assistant")


def _given(tools: Sequence[Tool]) -> str:
    """Describe the tools, as the first turn of the user begins."""
    if not tools:
        return ""
    texts = [to_json(declaration(tool), indent=4) for tool in tools]
    return _INSTRUCTIONS + "".join(f"{each}\n\n" for each in texts)


def _written(turn: Turn) -> str:
    if turn.role == "tool":
        return _message("ipython", to_json(turn.text))
    if turn.calls:  # text beside a call cannot be said: the templates drop it, too
        (call,) = turn.calls
        name = to_json(call.name)
        text = f'{{"name": {name}, "parameters": {arguments_of(call)}}}'
        return _message("assistant", text)
    return _message(turn.role, turn.text.strip())


def _message(role: str, text: str) -> str:
    return f"{_header(role)}{text}<|eot_id|>"


def _header(role: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n"


def _read(text: str, _tools: Sequence[Tool]) -> Sequence[Call] | None:
    return read_calls(_SEMICOLON.sub("\n", text))


def _judge(text: str, tools: Sequence[Tool]) -> bool | None:
    """Tell whether an answer that begins with an object is a call, or was meant as one.

    It is where it comes to arguments, or has the name of a tool that there is. It is not
    where something comes before that calls do not have.
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
        if (verdict := _judged(key[1], decoded(value[0]), tools)) is not None:
            return verdict
        if (comma := _COMMA.match(head, value.end())) is None:
            return more if not head[value.end() :].strip() else False
        at = comma.end()
    begun = _KEY_BEGUN.fullmatch(head, at)
    known = (*_BEFORE, *_ARGUMENTS)
    is_begun = begun and any(each.startswith(begun[1] or "") for each in known)
    return more if is_begun else False


def _judged(key: str, value: object, tools: Sequence[Tool]) -> bool | None:
    """Tell the same by a value before the arguments."""
    match key:
        case "name" if value in [tool.name for tool in tools]:
            return True
        case "name" if not isinstance(value, str):
            return False
        case "type" if value != "function":
            return False
        case _:
            return None


def _write_calls(lark: Lark, tools: Sequence[Tool]) -> str:
    calls = in_a_row(lark, write_any_call(lark, tools, "parameters"), "; ")
    return f"({lark.marker(_PYTHON_TAG)})? {calls}"


def _recognises(_architecture: str, template: str) -> bool:
    return (
        "<|start_header_id|>" in template
        and "Environment: ipython" in template
        and "<function=" not in template  # Functionary's
    )


LLAMA3: Final = Dialect(
    name="llama3",
    regions=(
        Region(holds="calls", begins=(_PYTHON_TAG,), read=_read),
        Region(
            holds="calls",
            begins=tuple(f"{{{gap}{key}" for gap, key in product(_GAPS, _KEYS)),
            only_first=True,
            keeps_begin=True,
            read=_read,
            judge=_judge,
        ),
    ),
    render=_render,
    write_calls=_write_calls,
    recognises=_recognises,
)
