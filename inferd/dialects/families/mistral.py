"""Dialect of Mistral's models, from version 3 of their format to the newest.

Prompts have version 13, which most models since mid-2025 share: Devstral, Magistral,
Ministral 3. Answers are parsed in all versions, and forced calls may have any, as a model
prefers its own.

Sources: ``mistral_common``; the chat templates of the models.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final

from inferd.backend.job import ToolSpec, Turn
from inferd.dialects.calls.json_syntax import (
    make_call,
    read_call_array,
    read_cut_calls,
    strict_json,
    value_end,
    write_any_call,
)
from inferd.dialects.dialect import Arguments, Dialect, ParsedCall, Region
from inferd.dialects.families import hermes
from inferd.dialects.lark import LarkBuilder, one_of, one_or_more_calls
from inferd.dialects.rendering import arguments_of, declaration, to_json
from inferd.dialects.schema.arguments import full_arguments_schema

_BEGIN: Final = "[TOOL_CALLS]"
_ID: Final = "[CALL_ID]"
_ARGUMENTS: Final = "[ARGS]"
_NAME: Final = r"[^\s\[\]{}]+"
_NAMED: Final = re.compile(rf"\s*({_NAME})\s*(?:\[CALL_ID\][^\[\]{{}}]*)?\[ARGS\]\s*")
_NEXT: Final = re.compile(r"\s*(?:(\[TOOL_CALLS\])|\Z)")
_THINK: Final = """\
# HOW YOU SHOULD THINK AND ANSWER

First draft your thinking process (inner monologue) until you arrive at a response. \
Format your response using Markdown, and use LaTeX for any mathematical equations. \
Write both your thoughts and the response in the same language as the input.

Your thinking process must follow the template below:[THINK]Your thoughts or/and draft, \
like working through an exercise on scratch paper. Be as casual and as long as you want \
until you are confident to generate the response to the user.[/THINK]\
Here, provide a self-contained response."""
_WRITTEN_ID: Final = "[a-zA-Z0-9]{9}"


def _render(turns: Sequence[Turn], tools: Sequence[ToolSpec], thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    if thinks:
        turns = _told_to_think(turns)
    given = _given(tools)
    has_user = any(turn.role == "user" for turn in turns)
    parts: list[str] = []
    for role, run in groupby(turns, lambda turn: turn.role):
        if role == "user" or (role != "system" and not has_user):
            parts.append(given)
            given = ""
        parts.append(_written(role, [*run]))
    return "".join(parts) + given


def _told_to_think(turns: Sequence[Turn]) -> list[Turn]:
    """Ask for thinking in the system turn, which is the only switch."""
    if turns and turns[0].role == "system":
        return [Turn("system", f"{turns[0].text}\n\n{_THINK}"), *turns[1:]]
    return [Turn("system", _THINK), *turns]


def _given(tools: Sequence[ToolSpec]) -> str:
    """Describe the tools, for the text before the first user turn."""
    if not tools:
        return ""
    described = to_json([declaration(each) for each in tools])
    return f"[AVAILABLE_TOOLS]{described}[/AVAILABLE_TOOLS]"


def _written(role: str, run: Sequence[Turn]) -> str:
    """Render turns of one role; those of the user or the assistant are merged."""
    said = "\n\n".join(turn.text for turn in run if turn.text)
    match role:
        case "user":
            return f"[INST]{said}[/INST]"
        case "assistant":
            return f"{said}{''.join(_calls(run))}</s>"
        case "tool":
            return "".join(f"[TOOL_RESULTS]{each.text}[/TOOL_RESULTS]" for each in run)
        case _:
            return "".join(
                f"[SYSTEM_PROMPT]{each.text}[/SYSTEM_PROMPT]" for each in run
            )


def _calls(turns: Sequence[Turn]) -> Iterator[str]:
    for turn in turns:
        for call in turn.calls:
            yield f"{_BEGIN}{call.name}{_ARGUMENTS}{arguments_of(call)}"


def _read(text: str, _tools: Sequence[ToolSpec]) -> Sequence[ParsedCall] | None:
    if text.lstrip().startswith("["):
        return read_call_array(text)
    try:
        return [call for call, _ in _named_in(text)]
    except (ValueError, RecursionError):
        return None


def _read_cut(text: str) -> tuple[Sequence[ParsedCall], str]:
    if text.lstrip().startswith("["):
        return read_cut_calls(text)
    calls, end = [], 0
    with suppress(ValueError, RecursionError):
        for call, end in _named_in(text):  # noqa: B007  # of the last one
            calls.append(call)
    return calls, text[end:]


def _named_in(text: str) -> Iterator[tuple[ParsedCall, int]]:
    """Parse names and arguments, call by call, as strings may contain markers.

    Yields:
        A complete call, and the index after it.

    Raises:
        ValueError: the text is not such calls.
    """
    at: int | None = 0
    while at is not None:
        head = _NAMED.match(text, at)
        if head is None:
            raise ValueError("not a name and arguments")
        end = value_end(text, head.end())
        arguments = strict_json(text[head.end() : end], Arguments)
        yield make_call(head[1], arguments), end
        after = _NEXT.match(text, end)
        if after is None:
            raise ValueError("more than calls")
        at = after.end() if after[1] else None


def _write_calls(lark: LarkBuilder, tools: Sequence[ToolSpec]) -> str:
    begin = lark.marker(_BEGIN)
    call_id = f"({lark.marker(_ID)} {lark.pattern(_WRITTEN_ID)})?"
    named = one_of([_named_call(lark, tool, call_id) for tool in tools])
    calls = one_or_more_calls(lark, f"{begin} {named}", "")
    listed = one_or_more_calls(lark, write_any_call(lark, tools), ", ")
    return one_of([calls, f'{begin} " "? "[" {listed} "]"'])


def _named_call(lark: LarkBuilder, tool: ToolSpec, call_id: str) -> str:
    arguments = lark.json(full_arguments_schema(tool))
    name = lark.text(tool.name)
    return f"{name} {call_id} {lark.marker(_ARGUMENTS)} {arguments}"


def _recognises(architecture: str, template: str) -> bool:
    if not template:
        return architecture in ("mistral3", "mistral4")
    return _BEGIN in template


MISTRAL: Final = Dialect(
    name="mistral",
    regions=(
        Region(holds="thought", begins=("[THINK]",), ends=("[/THINK]",)),
        hermes.THOUGHT,
        Region(holds="calls", begins=(_BEGIN,), read=_read, read_cut=_read_cut),
        # Outside of calls they are text; calls need them, so their tokens must be kept.
        Region(holds="text", begins=(_ID, _ARGUMENTS), ends=("",), keeps_begin=True),
    ),
    render=_render,
    write_calls=_write_calls,
    recognises=_recognises,
    tool_names=re.compile(_NAME),
)
