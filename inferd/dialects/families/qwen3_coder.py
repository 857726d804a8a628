"""Dialect of Qwen3-Coder: ChatML, and calls with arguments between tags.

Qwen 3.5 and Nemotron 3 have it too; these also think.

Source: the chat templates of Qwen3-Coder-30B-A3B-Instruct and Qwen3.5-4B.
"""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from inferd.backend.job import ToolSpec, Turn
from inferd.dialects.calls.string_tracker import TaggedStringTracker
from inferd.dialects.calls.tagged_grammar import write_calls
from inferd.dialects.calls.tagged_syntax import (
    BEGIN,
    END,
    NAME,
    format_call,
    format_value,
    read_calls,
)
from inferd.dialects.dialect import Dialect, Region
from inferd.dialects.families import chatml, hermes
from inferd.dialects.schema.reader import (
    Schema,
    as_schema,
    parse_json_strict,
    properties,
)

_NO_SYSTEM: Final = (
    "You are Qwen, a helpful AI assistant that can interact with a computer to solve "
    "tasks."
)
_TOOLS: Final = """\


# Tools

You have access to the following functions:

<tools>{tools}
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> \
block must be nested within <tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE \
the function call, but NOT after
- If there is no function call available, answer the question like normal with your \
current knowledge and do not tell the user about function calls
</IMPORTANT>"""


def _render(turns: Sequence[Turn], tools: Sequence[ToolSpec], _thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    parts: list[str] = []
    if tools:
        system, turns = _split(turns)
        told = _TOOLS.format(tools="".join(map(_described, tools)))
        parts = [chatml.format_turn("system", system + told)]
    for is_result, run in groupby(turns, lambda turn: turn.role == "tool"):
        if is_result:
            parts.append(chatml.format_turn("user", "".join(map(_result, run))))
        else:
            parts += [chatml.format_turn(turn.role, _text(turn)) for turn in run]
    return "".join(parts) + chatml.ASSISTANT


def _split(turns: Sequence[Turn]) -> tuple[str, Sequence[Turn]]:
    if turns and turns[0].role == "system":
        return turns[0].text, turns[1:]
    return _NO_SYSTEM, turns


def _described(tool: ToolSpec) -> str:
    schema = as_schema(parse_json_strict(tool.input_schema))
    given = "".join(map(_parameter, properties(schema).items()))
    return (
        f"\n<function>\n<name>{tool.name}</name>"
        f"\n<description>{tool.description.strip()}</description>"
        f"\n<parameters>{given}{_tags(schema, ('type', 'properties'))}"
        "\n</parameters>\n</function>"
    )


def _parameter(given: tuple[str, object]) -> str:
    name, schema = given[0], as_schema(given[1])
    text = f"\n<parameter>\n<name>{name}</name>"
    if "type" in schema:
        text += f"\n<type>{schema['type']}</type>"
    if "description" in schema:
        text += f"\n<description>{str(schema['description']).strip()}</description>"
    return text + _tags(schema, ("name", "type", "description")) + "\n</parameter>"


def _tags(schema: Schema, without: Sequence[str]) -> str:
    return "".join(
        f"\n<{key}>{format_value(value)}</{key}>"
        for key, value in schema.items()
        if key not in without
    )


def _result(turn: Turn) -> str:
    return f"<tool_response>\n{turn.text}\n</tool_response>\n"


def _text(turn: Turn) -> str:
    if not turn.calls:
        return turn.text
    said = turn.text.strip()
    calls = "\n".join(map(format_call, turn.calls))
    return f"{said}\n\n{calls}" if said else calls


def _recognises(architecture: str, template: str) -> bool:
    if not template:
        return architecture in ("qwen35", "qwen35moe")
    parts = ("<|im_start|>", "<tool_call>", BEGIN, "<parameter=")
    return all(each in template for each in parts)


UNMARKED_CALLS: Final = Region(
    holds="calls",
    begins=(BEGIN,),
    ends=(END,),
    read=read_calls,
    string_tracker=TaggedStringTracker,
    keeps_begin=True,
)
"""Calls without ``<tool_call>``, which the model sometimes omits."""

QWEN3_CODER: Final = Dialect(
    name="qwen3-coder",
    regions=(
        hermes.THOUGHT,
        Region(
            holds="calls",
            begins=hermes.CALLS.begins,
            ends=(END,),
            read=read_calls,
            string_tracker=TaggedStringTracker,
        ),
        UNMARKED_CALLS,
    ),
    render=_render,
    write_calls=write_calls,
    recognises=_recognises,
    tool_names=re.compile(NAME),
    close_thought=hermes.CLOSE_THOUGHT,
)
