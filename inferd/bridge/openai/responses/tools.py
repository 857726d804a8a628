"""Tools of a response, their choice, and the form of its text."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from inferd.bridge.translation.body import convert_part
from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.bridge.translation.objects import Strict
from inferd.bridge.translation.prompt import ANY_OBJECT, json_form, to_tool
from inferd.bridge.translation.strictness import unenforced
from inferd.limits.bridge import MAX_STATED_CHARS
from inferd.wire.blocks import NamedTool, ResponseFormat, Tool

Fields = dict[str, object]


class ResponseFunction(Strict, frozen=True, kw_only=True):
    """A function that the model may call."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: Fields | None = None
    strict: bool | None = None
    allowed_callers: list[Literal["direct"]] | None = None
    is_async: Literal[False] | None = msgspec.field(default=None, name="async")
    defer_loading: bool | None = None
    """Without effect: all functions are in the prompt."""
    output_schema: Fields | None = None
    """Without effect: results are not checked."""


class ToolReference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool that a choice names."""

    type: str
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list["ToolReference"] = []
    """With ``allowed_tools``: those that may be called."""


Choice = Literal["auto", "none", "required"] | ToolReference


class ChosenTools(Struct, frozen=True, kw_only=True):
    """What the daemon is told of tools, and what it is not."""

    tools: list[Tool]
    choice: str | NamedTool | None
    stated: list[Fields]
    """The functions as the request has them, which the response repeats; ``strict`` only
    where that is enforced."""
    skipped: str
    """The places and types of tools that the model is not offered; empty for none."""
    unenforced: str
    """The places of functions that are ``strict`` to no effect; empty for none."""


class TypedFormat(Strict, frozen=True, kw_only=True, omit_defaults=True):
    """The form of the text."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema: Fields | None = None
    strict: bool | None = None


def choose_tools(
    tools: Sequence[Fields], choice: Choice | None, *, has_form: bool
) -> ChosenTools:
    """Translate tools: functions; those of another type are skipped.

    A model that is not offered a tool does without it, and agents send tools of types that
    only one service has. One that the choice names is refused.

    Raises:
        BridgeError: the choice cannot be kept.
    """
    placed = {
        f"tools[{index}]": tool
        for index, tool in enumerate(tools)
        if tool.get("type") == "function"
    }
    all_functions = [_function(tool, place) for place, tool in placed.items()]
    functions = _allowed(all_functions, choice)
    not_strict = unenforced(
        (
            f"{place}.strict"
            for place, function in zip(placed, all_functions, strict=True)
            if function.strict
        ),
        is_forced=choice == "none" or _is_forced(choice),
        has_form=has_form,
    )
    return ChosenTools(
        tools=[
            to_tool(each.name, each.description, each.parameters) for each in functions
        ],
        choice=_choice(choice, functions),
        stated=[
            {**tool, "strict": False} if not_strict and tool.get("strict") else tool
            for tool in placed.values()
        ],
        skipped=_skipped(tools),
        unenforced=not_strict,
    )


def to_format(wanted: TypedFormat | None) -> ResponseFormat | None:
    """Translate the form of the text.

    Raises:
        BridgeError: a schema is missing.
    """
    if wanted is None or wanted.type == "text":
        return None
    schema = ANY_OBJECT if wanted.type == "json_object" else wanted.schema
    if schema is None:
        raise invalid("text.format.schema", "is missing")
    return json_form(schema)


def _function(tool: Fields, place: str) -> ResponseFunction:
    return convert_part(tool, ResponseFunction, place)


def _allowed(
    functions: list[ResponseFunction], choice: Choice | None
) -> list[ResponseFunction]:
    """Return the functions that a choice allows.

    Raises:
        BridgeError: it names something that is not among them.
    """
    if not isinstance(choice, ToolReference):
        return functions
    is_list = choice.type == "allowed_tools"
    named = choice.tools if is_list else [choice]
    names = {function.name for function in functions}
    for tool in named:
        if tool.type != "function" or tool.name not in names:
            what = f"{tool.type} {tool.name or ''}"[:MAX_STATED_CHARS].strip()
            raise BridgeError(
                Reason.UNSUPPORTED,
                f"tool_choice: {what} is none of the functions of tools",
                param="tool_choice",
            )
    if not is_list:
        return functions
    allowed = {tool.name for tool in named}
    return [function for function in functions if function.name in allowed]


def _is_forced(choice: Choice | None) -> bool:
    if isinstance(choice, ToolReference):
        return choice.type != "allowed_tools" or choice.mode == "required"
    return choice == "required"


def _choice(
    choice: Choice | None, functions: Sequence[ResponseFunction]
) -> str | NamedTool | None:
    if not functions:
        if _is_forced(choice):
            raise invalid("tool_choice", "needs functions in tools")
        return None
    if isinstance(choice, ToolReference):
        is_named = choice.type == "function" and choice.name is not None
        return NamedTool(choice.name or "") if is_named else choice.mode or "auto"
    return choice


def _skipped(tools: Sequence[Fields]) -> str:
    """Say which tools are skipped, as far as a value of metadata may be long."""
    others = [
        f"tools[{index}] {str(tool.get('type'))[:MAX_STATED_CHARS]}"
        for index, tool in enumerate(tools)
        if tool.get("type") != "function"
    ]
    return ", ".join(others)[:MAX_STATED_CHARS]
