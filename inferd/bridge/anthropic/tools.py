"""Tools and their choice: what of them the daemon enforces."""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from inferd.bridge.anthropic.content import Cacheable
from inferd.bridge.translation.body import convert_part
from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.bridge.translation.objects import Strict
from inferd.bridge.translation.prompt import raw_json
from inferd.bridge.translation.strictness import unenforced
from inferd.limits.bridge import MAX_STATED_CHARS
from inferd.wire.blocks import NamedTool, Tool


class CustomTool(Cacheable, frozen=True, kw_only=True):
    """A tool of the caller's own, with a schema of its input."""

    name: str
    input_schema: dict[str, object]
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    input_examples: list[dict[str, object]] | None = None
    allowed_callers: list[Literal["direct"]] | None = None
    defer_loading: bool | None = None
    """Without effect: all tools are in the prompt."""
    eager_input_streaming: bool | None = None
    """Without effect: the input of a call comes at once."""


class MessageToolChoice(Strict, frozen=True, kw_only=True):
    """Which tools an answer may or must call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False

    @property
    def is_forced(self) -> bool:
        """Whether the answer must have a call."""
        return self.type in ("any", "tool")


class _ToolType(Struct):
    type: object = None


def to_custom(tools: Sequence[object]) -> list[CustomTool]:
    """Read tools.

    Raises:
        BridgeError: one is none of the caller's own.
    """
    return [_custom(tool, f"tools[{index}]") for index, tool in enumerate(tools)]


def to_tool(tool: CustomTool) -> Tool:
    """Translate a tool."""
    return Tool(tool.name, "".join(_description(tool)), raw_json(tool.input_schema))


def unenforced_tools(
    tools: Sequence[CustomTool], choice: MessageToolChoice | None, *, has_form: bool
) -> str:
    """Name the tools that are ``strict`` where calls are not held to their schemas."""
    places = (
        f"tools[{index}].strict" for index, tool in enumerate(tools) if tool.strict
    )
    is_forced = choice is not None and choice.type != "auto"
    return unenforced(places, is_forced=is_forced, has_form=has_form)


def to_choice(
    choice: MessageToolChoice | None, *, has_tools: bool
) -> str | NamedTool | None:
    """Translate the choice of a tool.

    Raises:
        BridgeError: there are no tools to choose from, or none is named.
    """
    if choice is None:
        return None
    if choice.is_forced and not has_tools:
        raise invalid("tool_choice", "needs tools")
    if (choice.type == "tool") != (choice.name is not None):
        raise invalid("tool_choice.name", "belongs to the type tool, which needs it")
    if choice.name is not None:
        return NamedTool(choice.name)
    daemon = "required" if choice.type == "any" else choice.type
    return daemon if has_tools else None


def _custom(value: object, place: str) -> CustomTool:
    kind = convert_part(value, _ToolType, place).type
    if kind not in (None, "custom"):
        raise BridgeError(
            Reason.UNSUPPORTED,
            f"{place}: tools of type {str(kind)[:MAX_STATED_CHARS]} are not supported; "
            "those with an input_schema are",
            param=place,
        )
    return convert_part(value, CustomTool, place)


def _description(tool: CustomTool) -> Iterator[str]:
    yield tool.description or ""
    if tool.input_examples:
        yield "\n\nExamples of its input:"
    for example in tool.input_examples or []:
        yield "\n" + msgspec.json.encode(example).decode()
