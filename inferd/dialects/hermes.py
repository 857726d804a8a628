"""Tools in plain text, as Hermes 2 Pro began it: what families share that know none.

A system turn describes the tools in JSON, the assistant writes calls as JSON between
markers, and a user turn brings the results. Qwen was trained with these very words, and
models that were not can follow them.

Source: the chat templates of Hermes 2 Pro, Hermes 3, Qwen 2.5 and Qwen 3.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from inferd.dialects.dialect import Region
from inferd.dialects.json_calls import read_calls, write_any_call
from inferd.dialects.lark import Lark, in_a_row
from inferd.dialects.strings import JsonStrings
from inferd.dialects.turns import arguments_of, declaration, to_json
from inferd.job import Tool, ToolCall, Turn

_BEGIN: Final = "<tool_call>"
_END: Final = "</tool_call>"
_TOOLS: Final = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""

CALLS: Final = Region(
    holds="calls",
    begins=(_BEGIN, f"\n{_BEGIN}", f"\n\n{_BEGIN}"),
    ends=(_END,),
    read=read_calls,
    strings=JsonStrings,
)
THOUGHT: Final = Region(
    holds="thought",
    begins=("<think>", "<think>\n"),
    ends=("</think>", "</think>\n\n", "\n</think>", "\n</think>\n\n"),
    only_first=True,
)
NO_THOUGHT: Final = "\n</think>\n\n"


def in_plain_turns(turns: Sequence[Turn], tools: Sequence[Tool]) -> list[Turn]:
    """Say tools, calls and results in turns of text."""
    return [*_with_tools(turns, tools)] if tools else [*_plain(turns)]


def write_calls(lark: Lark, tools: Sequence[Tool]) -> str:
    """Give the expression for one call or more."""
    begin, end = lark.marker(f"{_BEGIN}\n"), lark.marker(f"\n{_END}")
    return in_a_row(lark, f"{begin} {write_any_call(lark, tools)} {end}", "\n")


def _with_tools(turns: Sequence[Turn], tools: Sequence[Tool]) -> Iterator[Turn]:
    listed = "\n".join(to_json(declaration(each)) for each in tools)
    told = [_TOOLS.format(tools=listed)]
    if turns and turns[0].role == "system":
        told = [turns[0].text, *told]
        turns = turns[1:]
    yield Turn("system", "\n\n".join(filter(None, told)))
    yield from _plain(turns)


def _plain(turns: Sequence[Turn]) -> Iterator[Turn]:
    for is_result, run in groupby(turns, lambda turn: turn.role == "tool"):
        if is_result:
            yield Turn("user", "\n".join(map(_result, run)))
        else:
            yield from map(_said, run)


def _result(turn: Turn) -> str:
    return f"<tool_response>\n{turn.text}\n</tool_response>"


def _said(turn: Turn) -> Turn:
    calls = map(_call, turn.calls)
    return Turn(turn.role, "\n".join(filter(None, [turn.text, *calls])))


def _call(call: ToolCall) -> str:
    name, arguments = to_json(call.name), arguments_of(call)
    return f'{_BEGIN}\n{{"name": {name}, "arguments": {arguments}}}\n{_END}'
