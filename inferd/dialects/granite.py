"""How IBM's Granite models write: version 4 as Hermes does, version 3 a list of calls.

Thoughts are of version 3 alone, so a prompt that wants one is of that, and any other of
version 4, whose templates can say everything. Those of version 3 leave out calls, which
are said to them in the text of turns.

Sources: the chat templates of Granite 3.3, 4.0 and 4.1; IBM's ``granite-common``.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from inferd.dialects import hermes
from inferd.dialects.dialect import Dialect, Region
from inferd.dialects.json_calls import read_array, write_any_call
from inferd.dialects.lark import Lark, either, in_a_row
from inferd.dialects.turns import arguments_of, declaration, to_json
from inferd.job import Tool, ToolCall, Turn

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


def _render(turns: Sequence[Turn], tools: Sequence[Tool], thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    if thinks:
        plain = _as_version_3(turns, tools, thinks=True)
    else:
        plain = [*_as_version_4(turns, tools)]
    texts = [f"{_ROLE}{each.role}{_ROLE_END}{each.text}{_END}" for each in plain]
    return f"{''.join(texts)}{_ROLE}assistant{_ROLE_END}"


def _as_version_4(turns: Sequence[Turn], tools: Sequence[Tool]) -> Iterator[Turn]:
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


def _call(call: ToolCall) -> str:
    return f'{{"name": {to_json(call.name)}, "arguments": {arguments_of(call)}}}'


def _as_version_3(
    turns: Sequence[Turn], tools: Sequence[Tool], *, thinks: bool = False
) -> list[Turn]:
    """Say tools, calls and results as version 3 was taught.

    Tools are a turn of their own there, for which there is no role: the system's ends early.
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


def _write_calls(lark: Lark, tools: Sequence[Tool]) -> str:
    listed = in_a_row(lark, write_any_call(lark, tools), ", ")
    version_3 = f'{lark.marker(_LIST)} "[" {listed} "]"'
    return either([version_3, hermes.write_calls(lark, tools)])


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
        Region(holds="calls", begins=(_LIST,), read=read_array),
        hermes.CALLS,
    ),
    render=_render,
    write_calls=_write_calls,
    recognises=_recognises,
    in_plain_turns=_as_version_3,
)
