"""What an answer must look like: a structure of its text, or a call."""

from typing import Final, Literal

from msgspec import UnsetType

from inferd.errors import InvalidRequestError
from inferd.job import Structure, Tool, ToolChoice
from inferd.limits import (
    GRAMMAR_MAX_ALTERNATIVES,
    GRAMMAR_MAX_BYTES,
    TOOLS_MAX_BYTES,
)
from inferd.resolve.sampling import json_text, listed, refusal
from inferd.wire.blocks import BlocksRequest, NamedTool, ResponseFormat

CHOICES: Final = ("auto", "required", "none")
KINDS: Final = ("json_schema", "regex", "gbnf", "lark")


def structure_of(asked: ResponseFormat | None) -> Structure | None:
    """Check what is asked of the text; whether it compiles is for the worker to say.

    Raises:
        InvalidRequestError: naming the field, its value and what is allowed.
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
            raise refusal("response_format.type", other, listed(KINDS))


def grammar_of(grammar: str) -> Structure | None:
    """Check the grammar of a v1 request; empty for none.

    Raises:
        InvalidRequestError: it is too long.
    """
    structure = Structure(kind="gbnf", source=grammar, in_v1=True)
    return _checked(structure) if grammar else None


def choice_of(request: BlocksRequest) -> ToolChoice:
    """Check the choice of tools.

    Raises:
        InvalidRequestError: naming the value, or the tool that is not there.
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
            raise refusal("tool_choice", other, listed(CHOICES))


def tools_of(request: BlocksRequest) -> tuple[Tool, ...]:
    """Give the tools that there are.

    Raises:
        InvalidRequestError: a schema is not UTF-8, or they are too large together.
    """
    tools = tuple(
        Tool(
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
