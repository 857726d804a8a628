"""Dialect of Gemma 4: thoughts, tools, calls and results have special tokens.

Calls, their results and the text after them are one turn of the model. Unlike in the
template, text before a call stays there, as the model generated it and as Google's library
does. A result without its call has the tool name ``unknown``.

Sources: Google's chat template of 2026-07-09; the ``dialog`` package, 1.1.0.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from inferd.backend.job import PastCall, ToolSpec, Turn
from inferd.dialects.calls.gemma4_grammar import write_calls
from inferd.dialects.calls.gemma4_syntax import (
    BEGIN,
    END,
    NAME,
    QUOTE,
    format_value,
    read_call,
    sorted_items,
)
from inferd.dialects.calls.string_tracker import QuotedStringTracker
from inferd.dialects.dialect import Dialect, Region
from inferd.dialects.schema.reader import (
    JSON_TYPES,
    Schema,
    allowed_types,
    as_schema,
    parse_json_strict,
    properties,
)

_TURN: Final = "<|turn>"
_TURN_END: Final = "<turn|>\n"
_THOUGHT: Final = "<|channel>"
_THOUGHT_END: Final = "<channel|>"
_MAX_DEPTH: Final = 16
"""Nesting depth of objects that a declaration describes."""


def _render(turns: Sequence[Turn], tools: Sequence[ToolSpec], thinks: bool) -> str:  # noqa: FBT001  # as all renderers
    begins_with_system = bool(turns) and turns[0].role == "system"
    parts: list[str] = []
    if begins_with_system or tools or thinks:
        system = turns[0].text.strip() if begins_with_system else ""
        declared = "".join(map(_declared, tools))
        thought = "<|think|>\n" if thinks else ""
        parts = [_turn("system", f"{thought}{system}{declared}")]
        turns = turns[begins_with_system:]
    for is_model, run in groupby(
        turns, lambda turn: turn.role in ("assistant", "tool")
    ):
        if is_model:
            parts.append(_turn("model", "".join(map(_said, run))))
        else:
            parts += [_turn(turn.role, turn.text.strip()) for turn in run]
    return _prompt("".join(parts), turns, thinks=thinks)


def _prompt(text: str, turns: Sequence[Turn], *, thinks: bool) -> str:
    """Add the beginning of the model's turn; after a result, continue the same turn."""
    if turns and turns[-1].role == "tool":
        thought = f"{_THOUGHT}thought\n" if thinks else ""
        return text.removesuffix(_TURN_END) + thought
    thought = "" if thinks else f"{_THOUGHT}thought\n{_THOUGHT_END}"
    return f"{text}{_TURN}model\n{thought}"


def _turn(role: str, text: str) -> str:
    return f"{_TURN}{role}\n{text}{_TURN_END}"


def _said(turn: Turn) -> str:
    if turn.role == "assistant":
        return turn.text.strip() + "".join(map(_call, turn.calls))
    answer = f"response:{turn.name or 'unknown'}{format_value({'value': turn.text})}"
    return f"<|tool_response>{answer}<tool_response|>"


def _call(call: PastCall) -> str:
    arguments = parse_json_strict(call.arguments)
    given = arguments if isinstance(arguments, dict) else {"value": arguments}
    return f"{BEGIN}call:{call.name}{format_value(given)}{END}"


# Declarations of tools.


def _declared(tool: ToolSpec) -> str:
    parts = [f"description:{format_value(tool.description)}"]
    schema = as_schema(parse_json_strict(tool.input_schema))
    if schema:
        parts.append(f"parameters:{{{','.join(_parameters(schema))}}}")
    return f"<|tool>declaration:{tool.name}{{{','.join(parts)}}}<tool|>"


def _parameters(schema: Schema) -> Iterator[str]:
    if properties(schema):
        yield _members(schema, schema, _MAX_DEPTH)
    yield from _needed(schema)
    yield f"type:{format_value('OBJECT')}"


def _members(schema: Schema, root: Schema, depth: int) -> str:
    members = [
        f"{key}:{{{','.join(_member(as_schema(each), root, depth - 1))}}}"
        for key, each in sorted_items(dict(properties(schema)) if depth else {})
    ]
    return f"properties:{{{','.join(members)}}}"


def _member(schema: Schema, root: Schema, depth: int) -> Iterator[str]:
    kind, is_nullable = _type(schema, root)
    if schema.get("description"):
        yield f"description:{format_value(schema['description'])}"
    if kind == "STRING" and schema.get("enum"):
        yield f"enum:{format_value(schema['enum'])}"
    if kind == "ARRAY" and as_schema(schema.get("items")):
        items = _items(as_schema(schema["items"]), root, depth)
        yield f"items:{{{','.join(items)}}}"
    if is_nullable or schema.get("nullable"):
        yield "nullable:true"
    if kind == "OBJECT":
        yield _members(schema, root, depth)
        yield from _needed(schema)
    yield f"type:{format_value(kind)}"


def _items(schema: Schema, root: Schema, depth: int) -> Iterator[str]:
    for key, value in sorted_items(dict(schema)):
        match key:
            case "properties":
                yield _members(schema, root, depth)
            case "type" if isinstance(value, str):
                yield f"type:{format_value(value.upper())}"
            case _ if value is not None:
                yield f"{key}:{format_value(value, quotes_keys=True)}"
            case _:
                pass


def _needed(schema: Schema) -> Iterator[str]:
    if schema.get("required"):
        yield f"required:{format_value(schema['required'])}"


def _type(schema: Schema, root: Schema) -> tuple[str, bool]:
    """Give the one type that a declaration can tell, and whether nothing is allowed."""
    given = schema.get("type")
    if isinstance(given, str):
        return given.upper(), False
    allowed = allowed_types(schema, root)
    others = sorted(allowed - {"null"} if allowed != JSON_TYPES else ())
    return (others[0].upper() if others else ""), "null" in allowed and bool(others)


def _recognises(architecture: str, template: str) -> bool:
    return _TURN in template if template else architecture == "gemma4"


GEMMA4: Final = Dialect(
    name="gemma4",
    regions=(
        Region(
            holds="thought",
            begins=(_THOUGHT, f"{_THOUGHT}thought", f"{_THOUGHT}thought\n"),
            ends=(_THOUGHT_END, f"\n{_THOUGHT_END}"),
        ),
        Region(
            holds="calls",
            begins=(BEGIN,),
            ends=(END,),
            read=read_call,
            string_tracker=lambda: QuotedStringTracker(QUOTE),
        ),
        # It closes thoughts now and then that it never opened.
        Region(holds="nothing", begins=(_THOUGHT_END,), ends=("",)),
    ),
    render=_render,
    write_calls=write_calls,
    recognises=_recognises,
    tool_names=re.compile(NAME),
    close_thought=_THOUGHT_END,
)
