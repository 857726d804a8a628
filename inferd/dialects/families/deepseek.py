"""Dialect of DeepSeek's R1, the models distilled from it, and V3.1.

Prompts are those of V3.1. None of the templates describes tools, so they are described in
the text of turns, in the words of V3.1's documentation. Calls may have either format.

Sources: the chat templates of the three; DeepSeek's description of V3.1's tool calls.
"""

import re
from collections.abc import Sequence
from typing import Final

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.calls.json_syntax import make_call, strict_json
from inferd.dialects.calls.string_tracker import JsonStringTracker
from inferd.dialects.dialect import Arguments, Dialect, ParsedCall, Region
from inferd.dialects.families import hermes
from inferd.dialects.lark import LarkBuilder, one_of, one_or_more_calls
from inferd.dialects.rendering import arguments_of, parse_json, to_json
from inferd.dialects.schema.arguments import full_arguments_schema

# ruff: noqa: RUF001  # their bars are no ASCII
_CALLS: Final = "<｜tool▁calls▁begin｜>"
_CALLS_END: Final = "<｜tool▁calls▁end｜>"
_CALL: Final = "<｜tool▁call▁begin｜>"
_CALL_END: Final = "<｜tool▁call▁end｜>"
_SEPARATOR: Final = "<｜tool▁sep｜>"
_NAMES: Final = re.compile(r"[^\s<{\[](?:[^<{\[\n]*[^\s<{\[])?")
"""Names of tools: without characters of markers and JSON, or surrounding white space."""
_FUNCTION: Final = "function"
_FENCE: Final = "\n```json\n"
"""R1 has the tool's name after the word "function", and arguments in a code fence."""
_FENCE_END: Final = "```"
_USER: Final = "<｜User｜>"
_ASSISTANT: Final = "<｜Assistant｜>"
_OUTPUT: Final = "<｜tool▁output▁begin｜>"
_OUTPUT_END: Final = "<｜tool▁output▁end｜>"
_END: Final = "<｜end▁of▁sentence｜>"
_NEWER: Final = "dsml_token"
"""Text in templates of V3.2 and later, whose calls have another format."""

_TOOLS: Final = """\
## Tools
You have access to the following tools:
"""
_HOW_TO_CALL: Final = f"""
IMPORTANT: ALWAYS adhere to this exact format for tool use:
{_CALLS}{_CALL}tool_call_name{_SEPARATOR}tool_call_arguments{_CALL_END}\
{{{{additional_tool_calls}}}}{_CALLS_END}

Where:

- `tool_call_name` must be an exact match to one of the available tools
- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema
- For multiple tool calls, chain them directly without separators or spaces
"""


def _render(turns: Sequence[Turn], tools: Sequence[ToolSpec], thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    parts: list[str] = []
    last = "user"
    for turn in _in_plain_turns(turns, tools):
        parts.append(_written(turn, last))
        last = turn.role
    if last != "tool":  # after a result the assistant's turn goes on
        parts.append(f"{_ASSISTANT}{'<think>' if thinks else '</think>'}")
    return "".join(parts)


def _written(turn: Turn, last: str) -> str:
    match turn.role:
        case "system":
            return turn.text
        case "user":
            return f"{_USER}{turn.text}"
        case "tool":
            return f"{_OUTPUT}{turn.text}{_OUTPUT_END}"
        case "assistant":
            begin = f"{_ASSISTANT}</think>" if last == "user" else ""
            return f"{begin}{turn.text}{_END}"


def _in_plain_turns(turns: Sequence[Turn], tools: Sequence[ToolSpec]) -> list[Turn]:
    """Convert tools and calls to text, and merge system turns at the beginning.

    Results stay as they are: templates support them.
    """
    told = [turn.text for turn in turns if turn.role == "system"]
    if tools:
        told.append(f"{_TOOLS}{''.join(map(_described, tools))}{_HOW_TO_CALL}")
    system = "\n\n".join(filter(None, told))
    plain = [_said(turn) for turn in turns if turn.role != "system"]
    return [Turn("system", system), *plain] if system else plain


def _described(tool: ToolSpec) -> str:
    parameters = to_json(parse_json(tool.input_schema))
    about = f"Description: {tool.description}\n\nParameters: {parameters}"
    return f"\n### {tool.name}\n{about}\n"


def _said(turn: Turn) -> Turn:
    if not turn.calls:
        return turn
    calls = "".join(map(_call, turn.calls))
    return Turn(turn.role, f"{turn.text}{_CALLS}{calls}{_CALLS_END}")


def _call(call: PastCall) -> str:
    return f"{_CALL}{call.name}{_SEPARATOR}{arguments_of(call)}{_CALL_END}"


def _read(text: str, _tools: Sequence[ToolSpec]) -> Sequence[ParsedCall] | None:
    name, _, arguments = text.partition(_SEPARATOR)
    if name.strip() == _FUNCTION and _FENCE in arguments:
        name, _, arguments = arguments.partition(_FENCE)
        arguments = arguments.rstrip().removesuffix(_FENCE_END)
    try:
        return [make_call(name.strip(), strict_json(arguments, Arguments))]
    except (ValueError, RecursionError):
        return None


def _write_calls(lark: LarkBuilder, tools: Sequence[ToolSpec]) -> str:
    newer = one_or_more_calls(lark, one_of([_newer(lark, tool) for tool in tools]), "")
    older = one_or_more_calls(
        lark, one_of([_older(lark, tool) for tool in tools]), "\n"
    )
    calls = one_of([newer, older])
    return f"{lark.marker(_CALLS)} {calls} {lark.marker(_CALLS_END)}"


def _newer(lark: LarkBuilder, tool: ToolSpec) -> str:
    begin = f"{lark.marker(_CALL)} {lark.marker(_SEPARATOR, after=tool.name)}"
    return f"{begin} {_arguments(lark, tool)} {lark.marker(_CALL_END)}"


def _older(lark: LarkBuilder, tool: ToolSpec) -> str:
    # Separate terminals as above, or no tool name could begin with the word.
    head = f"{lark.marker(_CALL)} {lark.marker(f'{_FUNCTION}{_SEPARATOR}')}"
    begin = f"{head} {lark.marker(_FENCE, after=tool.name)}"
    end = lark.marker(f"\n{_FENCE_END}{_CALL_END}")
    return f"{begin} {_arguments(lark, tool)} {end}"


def _arguments(lark: LarkBuilder, tool: ToolSpec) -> str:
    return lark.json(full_arguments_schema(tool))


def _recognises(_architecture: str, template: str) -> bool:
    return _USER in template and _SEPARATOR in template and _NEWER not in template


DEEPSEEK: Final = Dialect(
    name="deepseek",
    regions=(
        hermes.THOUGHT,
        Region(
            holds="nothing",
            begins=(_CALLS, _CALLS_END),
            ends=("",),
            is_around_calls=True,
        ),
        Region(
            holds="calls",
            begins=(_CALL, f"\n{_CALL}"),
            ends=(_CALL_END,),
            read=_read,
            string_tracker=JsonStringTracker,
        ),
        # Outside of calls it is text; calls need it, so its token has to be kept.
        Region(holds="text", begins=(_SEPARATOR,), ends=("",), keeps_begin=True),
    ),
    render=_render,
    write_calls=_write_calls,
    recognises=_recognises,
    tool_names=_NAMES,
    close_thought=hermes.CLOSE_THOUGHT,
    tools_as_text=_in_plain_turns,
)
