"""How Mistral's models write, from the third version of their format to the newest.

Prompts are of the thirteenth, which most models since mid-2025 share: Devstral, Magistral,
Ministral 3. What is answered is read in any version, and a call that has to be written may
be of any: the model knows its own.

Sources: ``mistral_common``; the chat templates of the models.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from inferd.dialects import hermes
from inferd.dialects.arguments import arguments_json
from inferd.dialects.dialect import Arguments, Call, Dialect, Region
from inferd.dialects.json_calls import (
    checked,
    plain_json,
    read_array,
    value_end,
    write_any_call,
)
from inferd.dialects.lark import Lark, either, in_a_row
from inferd.dialects.turns import arguments_of, declaration, to_json
from inferd.job import Tool, Turn

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


def _render(turns: Sequence[Turn], tools: Sequence[Tool], thinks: bool) -> str:  # noqa: FBT001  # as all renderers
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
    """Tell it in the system's turn, which is all that there is to switch."""
    if turns and turns[0].role == "system":
        return [Turn("system", f"{turns[0].text}\n\n{_THINK}"), *turns[1:]]
    return [Turn("system", _THINK), *turns]


def _given(tools: Sequence[Tool]) -> str:
    """Describe the tools, as it stands before the first turn of the user."""
    if not tools:
        return ""
    described = to_json([declaration(each) for each in tools])
    return f"[AVAILABLE_TOOLS]{described}[/AVAILABLE_TOOLS]"


def _written(role: str, run: Sequence[Turn]) -> str:
    """Write turns of one role; what a user or the assistant says in a row is one turn."""
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


def _read(text: str, _tools: Sequence[Tool]) -> Sequence[Call] | None:
    if text.lstrip().startswith("["):
        return read_array(text)
    try:
        return [*_named_in(text)]
    except (ValueError, RecursionError):
        return None


def _named_in(text: str) -> Iterator[Call]:
    """Read names and arguments, one call after another: strings may hold markers.

    Raises:
        ValueError: they are no such calls.
    """
    at: int | None = 0
    while at is not None:
        head = _NAMED.match(text, at)
        if head is None:
            raise ValueError("not a name and arguments")
        end = _NEXT.match(text, value_end(text, head.end()))
        if end is None:
            raise ValueError("more than calls")
        arguments = plain_json(text[head.end() : end.start()], Arguments)
        yield checked(head[1], arguments)
        at = end.end() if end[1] else None


def _write_calls(lark: Lark, tools: Sequence[Tool]) -> str:
    begin = lark.marker(_BEGIN)
    call_id = f"({lark.marker(_ID)} {lark.pattern(_WRITTEN_ID)})?"
    named = either([_named_call(lark, tool, call_id) for tool in tools])
    call = lark.rule(f"{begin} {named}")
    listed = in_a_row(lark, write_any_call(lark, tools), ", ")
    return either([f"{call}+", f'{begin} " "? "[" {listed} "]"'])


def _named_call(lark: Lark, tool: Tool, call_id: str) -> str:
    arguments = lark.json(arguments_json(tool))
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
        Region(holds="calls", begins=(_BEGIN,), read=_read),
        # Alone they are text; in a call they are needed, so their tokens have to be kept.
        Region(holds="text", begins=(_ID, _ARGUMENTS), ends=("",), keeps_begin=True),
    ),
    render=_render,
    write_calls=_write_calls,
    recognises=_recognises,
    tool_names=re.compile(_NAME),
)
