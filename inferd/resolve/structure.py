"""Resolve the structure of an answer: grammars, schemas, and the choice of tools."""

from typing import Final, Literal

from msgspec import UnsetType

from inferd.backend.job import Structure, ToolChoice, ToolSpec
from inferd.errors import InvalidRequestError
from inferd.limits.protocol import (
    GRAMMAR_MAX_ALTERNATIVES,
    GRAMMAR_MAX_BYTES,
    TOOLS_MAX_BYTES,
)
from inferd.resolve.options import format_list, json_text, out_of_range
from inferd.wire.blocks import BlocksRequest, NamedTool, ResponseFormat

TOOL_CHOICES: Final = ("auto", "required", "none")
STRUCTURE_KINDS: Final = ("json_schema", "regex", "gbnf", "lark")


def structure_of(asked: ResponseFormat | None) -> Structure | None:
    """Check a ``response_format``; the worker checks that it compiles.

    Raises:
        InvalidRequestError: with the field, its value and what is allowed.
    """
    if asked is None:
        return None
    match asked.type:
        case "json_schema":
            if isinstance(asked.schema, UnsetType):
                raise InvalidRequestError("response_format.schema is missing")
            source = json_text("response_format.schema", asked.schema)
            return _checked(Structure(kind="json_schema", source=source))
        case "regex":
            return _structure("regex", asked.pattern)
        case "gbnf" | "lark" as kind:
            return _structure(kind, asked.grammar)
        case other:
            raise out_of_range(
                "response_format.type", other, format_list(STRUCTURE_KINDS)
            )


def grammar_of(grammar: str) -> Structure | None:
    """Check the grammar of a v1 request; an empty one gives ``None``.

    Raises:
        InvalidRequestError: it is too long.
    """
    structure = Structure(kind="gbnf", source=grammar, in_v1=True)
    return _checked(structure) if grammar else None


def choice_of(request: BlocksRequest) -> ToolChoice:
    """Check ``tool_choice``.

    Raises:
        InvalidRequestError: with the invalid value, or the tool that is not in ``tools``.
    """
    match request.tool_choice:
        case None:
            return ToolChoice()
        case NamedTool(name):
            if name not in [tool.name for tool in request.tools]:
                raise InvalidRequestError(f"tool_choice names no tool: {name}")
            return ToolChoice("named", name)
        case "required":
            if not request.tools:
                raise InvalidRequestError(
                    "tool_choice required needs a non-empty tools array"
                )
            return ToolChoice("required")
        case "auto" | "none" as kind:
            return ToolChoice(kind)
        case other:
            raise out_of_range("tool_choice", other, format_list(TOOL_CHOICES))


def tools_of(request: BlocksRequest) -> tuple[ToolSpec, ...]:
    """Return the tools of a request.

    Raises:
        InvalidRequestError: a schema is not UTF-8, or all tools together are too large.
    """
    tools = tuple(
        ToolSpec(
            name=tool.name,
            description=tool.description,
            input_schema=json_text(f"tools[{index}].input_schema", tool.input_schema),
        )
        for index, tool in enumerate(request.tools)
    )
    texts = ((each.name, each.description, each.input_schema) for each in tools)
    n_bytes = sum(len(text.encode()) for tool in texts for text in tool)
    if n_bytes > TOOLS_MAX_BYTES:
        raise InvalidRequestError(
            f"tools have {n_bytes} bytes, at most {TOOLS_MAX_BYTES} are allowed"
        )
    return tools


def _structure(kind: Literal["regex", "gbnf", "lark"], source: str | None) -> Structure:
    structure = Structure(kind=kind, source=source or "")
    if source is None:
        raise InvalidRequestError(f"{structure.field} is missing")
    return _checked(structure)


def _checked(structure: Structure) -> Structure:
    n_bytes = len(structure.source.encode())
    if n_bytes > GRAMMAR_MAX_BYTES:
        raise InvalidRequestError(
            f"{structure.field} has {n_bytes} bytes, "
            f"at most {GRAMMAR_MAX_BYTES} are allowed"
        )
    is_gbnf = structure.kind == "gbnf"
    n_alternatives = structure.source.count("|") if is_gbnf else 0
    if n_alternatives > GRAMMAR_MAX_ALTERNATIVES:
        raise InvalidRequestError(
            f"{structure.field} has {n_alternatives} alternatives (|), "
            f"at most {GRAMMAR_MAX_ALTERNATIVES} are allowed"
        )
    return structure
