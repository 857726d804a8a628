"""A request for a chat completion, and the daemon's request that it becomes."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from inferd.bridge.openai.chat_answer import ChatAnswer, ChatForm
from inferd.bridge.openai.messages import ChatMessage, to_messages
from inferd.bridge.openai.tables import CHAT
from inferd.bridge.openai.tools import (
    Choice,
    Format,
    FunctionTool,
    to_choice,
    to_format,
    to_tools,
    unenforced_tools,
)
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.failures import invalid
from inferd.bridge.translation.media import MediaOfRequest
from inferd.bridge.translation.objects import Strict, to_top_p
from inferd.bridge.translation.prompt import json_form
from inferd.bridge.translation.question import Asked, Question
from inferd.limits.protocol import U32_MAX
from inferd.wire.blocks import BlocksRequest, ResponseFormat

Tokens = Annotated[int, Meta(ge=1, le=U32_MAX)]
Natural = Annotated[int, Meta(ge=0, le=U32_MAX)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_NOT_THINKING: Final = ("none", "minimal")
_NAMES: Final = {"thinking": "reasoning_effort", "keep_alive_s": "keep_alive"}


class StreamOptions(Strict, frozen=True):
    """Options of a stream."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class SamplingFields(Struct, frozen=True, kw_only=True):
    """What requests for chats and for completions have in common."""

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Natural | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: Natural | None = None
    stop: str | list[str] | None = None
    keep_alive: float | None = None
    max_tokens: Tokens | None = None
    min_tokens: Natural | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None


class ChatRequest(SamplingFields, frozen=True, kw_only=True):
    """The honoured fields of a request for a chat completion."""

    messages: list[ChatMessage]
    max_completion_tokens: Tokens | None = None
    tools: list[FunctionTool] = []
    tool_choice: Choice | None = None
    parallel_tool_calls: bool = True
    response_format: Format | None = None
    json_schema: dict[str, object] | None = None
    grammar: str | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    reasoning_effort: Effort | None = None


def ask_chat(body: bytes, asked: Asked) -> Question:
    """Translate a request for a chat completion.

    Raises:
        BridgeError: it has something that is not served, or that contradicts itself.
    """
    chat = read_body(body, CHAT, ChatRequest)
    if not chat.messages:
        raise invalid("messages", "must not be empty")
    media = MediaOfRequest()
    field, structure = _structure(chat)
    request = BlocksRequest(
        id=asked.request_id,
        messages=to_messages(chat.messages, media),
        tools=to_tools(chat.tools),
        tool_choice=to_choice(chat.tool_choice, has_tools=bool(chat.tools)),
        response_format=structure,
        logprobs=_n_logprobs(chat),
        thinking=_thinks(chat.reasoning_effort),
        max_tokens=_max_tokens(chat, asked),
    )
    form = ChatForm(
        request_id=asked.request_id,
        created_s=asked.created_s,
        model=chat.model or "",
        includes_usage=includes_usage(chat),
        n_alternatives=chat.top_logprobs or 0,
        has_logprobs=chat.logprobs,
        allows_one_call=not chat.parallel_tool_calls,
    )
    return Question(
        with_sampling(request, chat),
        ChatAnswer(form),
        chat.stream,
        field_names={**_NAMES, "response_format": field},
        media=media.found,
        unenforced=unenforced_tools(
            chat.tools, chat.tool_choice, has_form=structure is not None
        ),
    )


def with_sampling(request: BlocksRequest, chat: SamplingFields) -> BlocksRequest:
    """Return the daemon's request with what both kinds of completions may set."""
    return replace(
        request,
        model=chat.model,
        temperature=chat.temperature,
        top_p=to_top_p(chat.top_p),
        top_k=chat.top_k,
        min_p=chat.min_p,
        repeat_penalty=chat.repeat_penalty,
        presence_penalty=chat.presence_penalty,
        frequency_penalty=chat.frequency_penalty,
        logit_bias=chat.logit_bias,
        seed=chat.seed,
        min_tokens=chat.min_tokens,
        stop=[chat.stop] if isinstance(chat.stop, str) else chat.stop or None,
        keep_alive_s=chat.keep_alive,
        stream=chat.stream,
    )


def includes_usage(chat: SamplingFields) -> bool:
    """Tell whether the stream has the usage.

    Raises:
        BridgeError: there are options of a stream, and no stream.
    """
    if chat.stream_options is None:
        return False
    if not chat.stream:
        raise invalid("stream_options", "needs stream")
    return bool(chat.stream_options.include_usage)


def _structure(chat: ChatRequest) -> tuple[str, ResponseFormat | None]:
    """Return the form of the answer, and the field that says it.

    Raises:
        BridgeError: more than one field does.
    """
    forms: dict[str, ResponseFormat | None] = {
        "response_format": to_format(chat.response_format)
    }
    if chat.json_schema is not None:
        forms["json_schema"] = json_form(chat.json_schema)
    if chat.grammar is not None:
        forms["grammar"] = ResponseFormat(type="gbnf", grammar=chat.grammar)
    said = [(name, form) for name, form in forms.items() if form is not None]
    if len(said) > 1:
        [(first, _), (second, _), *_] = said
        raise invalid(second, f"contradicts {first}")
    return said[0] if said else ("response_format", None)


def _max_tokens(chat: ChatRequest, asked: Asked) -> int:
    both = {chat.max_tokens, chat.max_completion_tokens} - {None}
    if len(both) > 1:
        raise invalid("max_tokens", "contradicts max_completion_tokens")
    return next((each for each in both if each), asked.default_max_tokens)


def _n_logprobs(chat: ChatRequest) -> int | None:
    """Return how many alternatives the daemon has to report: one at least."""
    if chat.top_logprobs is not None and not chat.logprobs:
        raise invalid("top_logprobs", "needs logprobs")
    return max(chat.top_logprobs or 0, 1) if chat.logprobs else None


def _thinks(effort: Effort | None) -> bool | None:
    return None if effort is None else effort not in _NOT_THINKING
