"""Tools in plain text, in the format of Hermes 2 Pro: a shared syntax, not a family.

Families without a format of their own use it, so it has no dialect in the registry.

A system turn describes the tools in JSON, the assistant generates calls as JSON between
markers, and a user turn has the results. Qwen was trained with exactly this text, and other
models can follow it.

Source: the chat templates of Hermes 2 Pro, Hermes 3, Qwen 2.5 and Qwen 3.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.calls.json_syntax import read_calls, write_any_call
from inferd.dialects.calls.string_tracker import JsonStringTracker
from inferd.dialects.dialect import Region
from inferd.dialects.lark import LarkBuilder, one_or_more_calls
from inferd.dialects.rendering import arguments_of, declaration, to_json

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
    string_tracker=JsonStringTracker,
)
THOUGHT: Final = Region(
    holds="thought",
    begins=("<think>", "<think>\n"),
    ends=("</think>", "</think>\n\n", "\n</think>", "\n</think>\n\n"),
    only_first=True,
)
CLOSE_THOUGHT: Final = "\n</think>\n\n"


def tools_as_text(turns: Sequence[Turn], tools: Sequence[ToolSpec]) -> list[Turn]:
    """Convert tools, calls and results to turns of text."""
    return [*_with_tools(turns, tools)] if tools else [*_plain(turns)]


def write_calls(lark: LarkBuilder, tools: Sequence[ToolSpec]) -> str:
    """Return the Lark expression for one or more calls of the tools."""
    begin, end = lark.marker(f"{_BEGIN}\n"), lark.marker(f"\n{_END}")
    return one_or_more_calls(lark, f"{begin} {write_any_call(lark, tools)} {end}", "\n")


def _with_tools(turns: Sequence[Turn], tools: Sequence[ToolSpec]) -> Iterator[Turn]:
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


def _call(call: PastCall) -> str:
    name, arguments = to_json(call.name), arguments_of(call)
    return f'{_BEGIN}\n{{"name": {name}, "arguments": {arguments}}}\n{_END}'
