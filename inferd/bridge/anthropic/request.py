"""A request for a message, and the daemon's request that it becomes."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from inferd.bridge.anthropic.answer import MessageAnswer, MessageForm
from inferd.bridge.anthropic.content import Plain
from inferd.bridge.anthropic.count import CountAnswer
from inferd.bridge.anthropic.messages import AssistantTurn, Turn, to_messages
from inferd.bridge.anthropic.system import to_system
from inferd.bridge.anthropic.tables import COUNT_TOKENS, MESSAGES
from inferd.bridge.anthropic.tools import (
    CustomTool,
    MessageToolChoice,
    to_choice,
    to_custom,
    to_tool,
    unenforced_tools,
)
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.failures import BridgeError, Reason, invalid
from inferd.bridge.translation.media import MediaOfRequest
from inferd.bridge.translation.objects import Strict, to_top_p
from inferd.bridge.translation.prompt import json_form
from inferd.bridge.translation.question import Asked, Question
from inferd.limits.protocol import U32_MAX
from inferd.wire.blocks import BlocksRequest, ResponseFormat

_NAMES: Final = {
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "keep_alive_s": "keep_alive",
}

Count = Annotated[int, Meta(ge=0, le=U32_MAX)]


class ThinkingConfig(Strict, frozen=True, kw_only=True):
    """Whether an answer begins with reasoning."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Count | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(Strict, frozen=True, kw_only=True):
    """JSON that satisfies a schema."""

    type: Literal["json_schema"]
    schema: dict[str, object]


class OutputConfig(Strict, frozen=True, kw_only=True):
    """The form of an answer."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class PromptRequest(Struct, frozen=True, kw_only=True):
    """The honoured fields of a request whose tokens are counted."""

    messages: list[Turn]
    model: str | None = None
    system: str | list[Plain] = ""
    tools: list[object] = []
    tool_choice: MessageToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None


class MessageRequest(PromptRequest, frozen=True, kw_only=True):
    """The honoured fields of a request for a message."""

    max_tokens: Count
    temperature: float | None = None
    top_p: float | None = None
    top_k: Count | None = None
    stop_sequences: list[str] = []
    stream: bool = False
    keep_alive: float | None = None


def ask_message(body: bytes, asked: Asked) -> Question:
    """Translate a request for a message.

    Raises:
        BridgeError: it has something that is not served, or that contradicts itself.
    """
    wanted = read_body(body, MESSAGES, MessageRequest)
    _refuse_prefill(wanted)
    is_prefill = wanted.max_tokens == 0
    tools = to_custom(wanted.tools)
    media = MediaOfRequest()
    request = replace(
        _prompt(wanted, tools, media, asked),
        temperature=wanted.temperature,
        top_p=to_top_p(wanted.top_p),
        top_k=wanted.top_k,
        stop=wanted.stop_sequences or None,
        stream=wanted.stream,
        keep_alive_s=wanted.keep_alive,
        max_tokens=None if is_prefill else wanted.max_tokens,
        prefill_only=is_prefill or None,
    )
    form = MessageForm(
        request_id=asked.request_id,
        model=wanted.model or "",
        allows_one_call=_allows_one_call(wanted.tool_choice),
        omits_thinking=wanted.thinking is not None
        and wanted.thinking.display == "omitted",
        is_prefill=is_prefill,
    )
    return Question(
        request,
        MessageAnswer(form),
        wanted.stream,
        field_names=_NAMES,
        media=media.found,
        reasons_if_able=_is_adaptive(wanted),
        unenforced=unenforced_tools(
            tools, wanted.tool_choice, has_form=request.response_format is not None
        ),
    )


def ask_count(body: bytes, asked: Asked) -> Question:
    """Translate a request for the number of a prompt's tokens.

    Raises:
        BridgeError: it has something that is not served, or that contradicts itself.
    """
    wanted = read_body(body, COUNT_TOKENS, PromptRequest)
    tools = to_custom(wanted.tools)
    media = MediaOfRequest()
    request = replace(_prompt(wanted, tools, media, asked), max_tokens=0)
    return Question(
        request,
        CountAnswer(),
        field_names=_NAMES,
        media=media.found,
        reasons_if_able=_is_adaptive(wanted),
    )


def _prompt(
    wanted: PromptRequest,
    tools: Sequence[CustomTool],
    media: MediaOfRequest,
    asked: Asked,
) -> BlocksRequest:
    """Return the daemon's request with all that is part of the prompt."""
    if not wanted.messages:
        raise invalid("messages", "must not be empty")
    return BlocksRequest(
        id=asked.request_id,
        model=wanted.model,
        messages=[*to_system(wanted.system), *to_messages(wanted.messages, media)],
        tools=[to_tool(tool) for tool in tools],
        tool_choice=to_choice(wanted.tool_choice, has_tools=bool(tools)),
        thinking=_thinks(wanted),
        response_format=_format(wanted.output_config),
    )


def _refuse_prefill(wanted: MessageRequest) -> None:
    if wanted.messages and isinstance(wanted.messages[-1], AssistantTurn):
        raise BridgeError(
            Reason.UNSUPPORTED,
            "messages: the last one is the assistant's, and an answer that has begun "
            "cannot be continued",
            param="messages",
        )


def _thinks(wanted: PromptRequest) -> bool | None:
    """Return whether to ask for reasoning.

    ``adaptive`` asks only a model that is named: without a name the request goes to the first
    that can do what is asked, which must not depend on what the answer may lack.
    """
    if wanted.thinking is None or (_is_adaptive(wanted) and wanted.model is None):
        return None
    return wanted.thinking.type != "disabled"


def _is_adaptive(wanted: PromptRequest) -> bool:
    """Tell whether an answer may come without reasoning, from a model that does not."""
    return wanted.thinking is not None and wanted.thinking.type == "adaptive"


def _format(config: OutputConfig | None) -> ResponseFormat | None:
    if config is None or config.format is None:
        return None
    return json_form(config.format.schema)


def _allows_one_call(choice: MessageToolChoice | None) -> bool:
    return choice is not None and choice.disable_parallel_tool_use
