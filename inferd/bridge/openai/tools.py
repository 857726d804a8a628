"""Tools, and the form of an answer: what of them the daemon enforces."""

from collections.abc import Sequence
from typing import Literal

from inferd.bridge.translation.failures import invalid
from inferd.bridge.translation.objects import Strict
from inferd.bridge.translation.prompt import ANY_OBJECT, json_form, to_tool
from inferd.bridge.translation.strictness import unenforced
from inferd.wire.blocks import NamedTool, ResponseFormat, Tool


class Function(Strict, frozen=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class FunctionTool(Strict, frozen=True):
    """A tool; functions are the only ones."""

    type: Literal["function"]
    function: Function


class FunctionName(Strict, frozen=True):
    """The name of a function."""

    name: str


class NamedChoice(Strict, frozen=True):
    """A choice of one function."""

    type: Literal["function"]
    function: FunctionName


class TextFormat(Strict, frozen=True, tag_field="type", tag="text"):
    """Any text."""


class ObjectFormat(Strict, frozen=True, tag_field="type", tag="json_object"):
    """Any JSON object, or JSON that satisfies a schema."""

    schema: dict[str, object] | None = None


class NamedSchema(Strict, frozen=True):
    """A schema with its name."""

    name: str | None = None
    description: str | None = None
    schema: dict[str, object] | None = None
    strict: bool | None = None


class SchemaFormat(Strict, frozen=True, tag_field="type", tag="json_schema"):
    """JSON that satisfies a schema."""

    json_schema: NamedSchema


Choice = Literal["auto", "none", "required"] | NamedChoice
Format = TextFormat | ObjectFormat | SchemaFormat


def to_tools(tools: Sequence[FunctionTool]) -> list[Tool]:
    """Translate tools."""
    return [
        to_tool(tool.function.name, tool.function.description, tool.function.parameters)
        for tool in tools
    ]


def unenforced_tools(
    tools: Sequence[FunctionTool], choice: Choice | None, *, has_form: bool
) -> str:
    """Name the tools that are ``strict`` where calls are not held to their schemas."""
    places = (
        f"tools[{index}].function.strict"
        for index, tool in enumerate(tools)
        if tool.function.strict
    )
    return unenforced(places, is_forced=choice not in (None, "auto"), has_form=has_form)


def to_choice(choice: Choice | None, *, has_tools: bool) -> str | NamedTool | None:
    """Translate the choice of a tool.

    Raises:
        BridgeError: there are no tools to choose from.
    """
    if choice not in (None, "none", "auto") and not has_tools:
        raise invalid("tool_choice", "needs tools")
    if isinstance(choice, NamedChoice):
        return NamedTool(choice.function.name)
    return choice if has_tools else None


def to_format(wanted: Format | None) -> ResponseFormat | None:
    """Translate the form of the answer.

    Raises:
        BridgeError: a schema is missing.
    """
    match wanted:
        case None | TextFormat():
            return None
        case ObjectFormat(schema=schema):
            return json_form(ANY_OBJECT if schema is None else schema)
        case SchemaFormat(json_schema=NamedSchema(schema=None)):
            raise invalid("response_format.json_schema.schema", "is missing")
        case SchemaFormat(json_schema=NamedSchema(schema=schema)):
            assert schema is not None  # noqa: S101  # the case above
            return json_form(schema)
