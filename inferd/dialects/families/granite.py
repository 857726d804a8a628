"""Dialect of IBM's Granite models: version 4 has calls as in Hermes, version 3 a list.

Only version 3 has thoughts, so prompts that ask for thinking have its format, and others
that of version 4, whose templates support everything. Templates of version 3 omit calls,
which are converted to text of turns.

Sources: the chat templates of Granite 3.3, 4.0 and 4.1; IBM's ``granite-common``.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.calls.json_syntax import (
    read_call_array,
    read_cut_calls,
    write_any_call,
)
from inferd.dialects.dialect import Dialect, Region
from inferd.dialects.families import hermes
from inferd.dialects.lark import LarkBuilder, one_of, one_or_more_calls
from inferd.dialects.rendering import arguments_of, declaration, to_json

_ROLE: Final = "<|start_of_role|>"
_ROLE_END: Final = "<|end_of_role|>"
_END: Final = "<|end_of_text|>\n"
_LIST: Final = "<|tool_call|>"
_ARCHITECTURES: Final = frozenset({"granite", "granitemoe", "granitehybrid"})

_TOOLS: Final = """\
You are a helpful assistant with access to the following tools. \
You may call one or more tools to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each tool call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>. If a tool does not exist in the provided list of tools, notify the user that \
you do not have the ability to fulfill the request."""
_WHO: Final = "You are Granite, developed by IBM. "
_HELPS: Final = f"{_WHO}You are a helpful AI assistant."
_HELPS_WITH_TOOLS: Final = f"""{_WHO}\
You are a helpful assistant with access to the following tools. \
When a tool is required to answer the user's query, respond only with {_LIST} \
followed by a JSON list of tools used. If a tool does not exist in the provided list of \
tools, notify the user that you do not have the ability to fulfill the request."""
_THINK: Final = """\
Respond to every user query in a comprehensive and detailed way. \
You can write down your thoughts and reasoning process before responding. \
In the thought process, engage in a comprehensive cycle of analysis, summarization, \
exploration, reassessment, reflection, backtracing, and iteration to develop \
well-considered thinking process. In the response section, based on various attempts, \
explorations, and reflections from the thoughts section, systematically present the final \
solution that you deem correct. The response should summarize the thought process. \
Write your thoughts between <think></think> and write your response between \
<response></response> for each user query."""


def _render(turns: Sequence[Turn], tools: Sequence[ToolSpec], thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    if thinks:
        plain = _as_version_3(turns, tools, thinks=True)
    else:
        plain = [*_as_version_4(turns, tools)]
    texts = [f"{_ROLE}{each.role}{_ROLE_END}{each.text}{_END}" for each in plain]
    return f"{''.join(texts)}{_ROLE}assistant{_ROLE_END}"


def _as_version_4(turns: Sequence[Turn], tools: Sequence[ToolSpec]) -> Iterator[Turn]:
    told, turns = _system_first(turns)
    if tools:
        listed = "\n".join(to_json(declaration(each)) for each in tools)
        told = "\n\n".join(filter(None, [told, _TOOLS.format(tools=listed)]))
    if told:
        yield Turn("system", told)
    for is_result, run in groupby(turns, lambda turn: turn.role == "tool"):
        if is_result:
            yield Turn("user", "".join(map(_result, run)))
        else:
            yield from map(_with_tags, run)


def _system_first(turns: Sequence[Turn]) -> tuple[str, Sequence[Turn]]:
    if turns and turns[0].role == "system":
        return turns[0].text, turns[1:]
    return "", turns


def _result(turn: Turn) -> str:
    return f"\n<tool_response>\n{turn.text}\n</tool_response>"


def _with_tags(turn: Turn) -> Turn:
    calls = [f"<tool_call>\n{_call(each)}\n</tool_call>" for each in turn.calls]
    return Turn(turn.role, "\n".join(filter(None, [turn.text, *calls])))


def _call(call: PastCall) -> str:
    return f'{{"name": {to_json(call.name)}, "arguments": {arguments_of(call)}}}'


def _as_version_3(
    turns: Sequence[Turn], tools: Sequence[ToolSpec], *, thinks: bool = False
) -> list[Turn]:
    """Convert tools, calls and results to text in the format of version 3.

    There, tools are a turn of their own. As no role exists for it, the system turn's text
    ends early and contains the markers of the next turn.
    """
    said = [Turn(each.role, _with_list(each)) for each in turns]
    if not (tools or thinks):
        return said
    told, rest = _system_first(said)
    told = told or (_HELPS_WITH_TOOLS if tools else _HELPS)
    if thinks:
        told += f"\n{_THINK}"
    if tools:
        listed = to_json([declaration(each) for each in tools], indent=4)
        told += f"{_END}{_ROLE}available_tools{_ROLE_END}{listed}"
    return [Turn("system", told), *rest]


def _with_list(turn: Turn) -> str:
    if not turn.calls:
        return turn.text
    return f"{turn.text}{_LIST}[{', '.join(map(_call, turn.calls))}]"


def _write_calls(lark: LarkBuilder, tools: Sequence[ToolSpec]) -> str:
    listed = one_or_more_calls(lark, write_any_call(lark, tools), ", ")
    version_3 = f'{lark.marker(_LIST)} "[" {listed} "]"'
    return one_of([version_3, hermes.write_calls(lark, tools)])


def _recognises(architecture: str, template: str) -> bool:
    return _ROLE in template if template else architecture in _ARCHITECTURES


GRANITE: Final = Dialect(
    name="granite",
    regions=(
        hermes.THOUGHT,
        Region(
            holds="text",
            begins=("<response>", "<response>\n"),
            ends=("</response>", "\n</response>"),
            only_first=True,
        ),
        Region(
            holds="calls",
            begins=(_LIST,),
            read=read_call_array,
            read_cut=read_cut_calls,
        ),
        hermes.CALLS,
    ),
    render=_render,
    write_calls=_write_calls,
    recognises=_recognises,
    tools_as_text=_as_version_3,
)
