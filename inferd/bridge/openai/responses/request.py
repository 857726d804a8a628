"""A request for a response, and the daemon's request that it becomes."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from inferd.bridge.openai.responses.answer import ResponseAnswer, ResponseForm
from inferd.bridge.openai.responses.items import to_messages
from inferd.bridge.openai.responses.tables import RESPONSES
from inferd.bridge.openai.responses.tools import (
    Choice,
    ChosenTools,
    Fields,
    TypedFormat,
    choose_tools,
    to_format,
)
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.failures import invalid
from inferd.bridge.translation.media import MediaOfRequest
from inferd.bridge.translation.objects import Strict, to_top_p
from inferd.bridge.translation.question import Asked, Question
from inferd.limits.protocol import U32_MAX
from inferd.wire.blocks import BlocksRequest, Message, TextBlock

SKIPPED_TOOLS: Final = "inferd_skipped_tools"
"""Key of a response's metadata that names the tools which the model was not offered."""
_LOGPROBS: Final = "message.output_text.logprobs"
Included = Literal[
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
]
"""What a client may want beside the answer; no response has any but the first."""
_NOT_THINKING: Final = ("none", "minimal")
_NAMES: Final = {
    "messages": "input",
    "thinking": "reasoning",
    "max_tokens": "max_output_tokens",
    "response_format": "text",
    "keep_alive_s": "keep_alive",
}


class TextConfig(Strict, frozen=True, kw_only=True):
    """The form of the text."""

    format: TypedFormat | None = None
    verbosity: Literal["medium"] | None = None


class Reasoning(Strict, frozen=True, kw_only=True):
    """Whether an answer begins with reasoning."""

    effort: (
        Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None
    ) = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn"] | None = None
    mode: Literal["standard"] | None = None


class ResponseStreamOptions(Strict, frozen=True, kw_only=True):
    """Options of a stream."""

    include_obfuscation: bool | None = None


class ResponseRequest(Struct, frozen=True, kw_only=True):
    """The honoured fields of a request for a response."""

    input: str | list[Fields]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=U32_MAX)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool = False
    stream_options: ResponseStreamOptions | None = None
    tools: list[Fields] = []
    tool_choice: Choice | None = None
    parallel_tool_calls: bool = True
    text: TextConfig = TextConfig()
    reasoning: Reasoning = Reasoning()
    include: list[Included] = []
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    metadata: dict[str, str] = {}
    keep_alive: float | None = None


def ask_response(body: bytes, asked: Asked) -> Question:
    """Translate a request for a response.

    Raises:
        BridgeError: it has something that is not served, or that contradicts itself.
    """
    wanted = read_body(body, RESPONSES, ResponseRequest)
    _refuse_contradictions(wanted)
    form = to_format(wanted.text.format)
    chosen = choose_tools(wanted.tools, wanted.tool_choice, has_form=form is not None)
    n_alternatives = _n_alternatives(wanted)
    media = MediaOfRequest()
    request = BlocksRequest(
        id=asked.request_id,
        model=wanted.model,
        messages=[*_instructions(wanted), *to_messages(wanted.input, media)],
        tools=chosen.tools,
        tool_choice=chosen.choice,
        response_format=form,
        thinking=_thinks(wanted.reasoning),
        max_tokens=wanted.max_output_tokens or asked.default_max_tokens,
        temperature=wanted.temperature,
        top_p=to_top_p(wanted.top_p),
        # The daemon reports one alternative at least.
        logprobs=None if n_alternatives is None else max(n_alternatives, 1),
        stream=wanted.stream,
        keep_alive_s=wanted.keep_alive,
    )
    answer_form = ResponseForm(
        request_id=asked.request_id,
        created_s=asked.created_s,
        stated=_stated(wanted, chosen),
        n_alternatives=n_alternatives,
        allows_one_call=not wanted.parallel_tool_calls,
    )
    answer = ResponseAnswer(answer_form)
    return Question(
        request,
        answer,
        wanted.stream,
        answer.failure_event,
        field_names=_NAMES,
        media=media.found,
        unenforced=chosen.unenforced,
    )


def _refuse_contradictions(wanted: ResponseRequest) -> None:
    if not wanted.input:
        raise invalid("input", "must not be empty")
    if wanted.stream_options is not None and not wanted.stream:
        raise invalid("stream_options", "needs stream")


def _instructions(wanted: ResponseRequest) -> list[Message]:
    if not wanted.instructions:
        return []
    return [Message("system", [TextBlock(wanted.instructions)])]


def _thinks(reasoning: Reasoning) -> bool | None:
    return None if reasoning.effort is None else reasoning.effort not in _NOT_THINKING


def _n_alternatives(wanted: ResponseRequest) -> int | None:
    """Return how many alternatives of each token are told; ``None`` for no tokens."""
    if wanted.top_logprobs is None and _LOGPROBS not in wanted.include:
        return None
    return wanted.top_logprobs or 0


def _stated(wanted: ResponseRequest, chosen: ChosenTools) -> Fields:
    """Return the fields of a request that responses repeat."""
    skipped = {SKIPPED_TOOLS: chosen.skipped} if chosen.skipped else {}
    return {
        "model": wanted.model or "",
        "instructions": wanted.instructions,
        "max_output_tokens": wanted.max_output_tokens,
        "metadata": {**wanted.metadata, **skipped},
        "parallel_tool_calls": wanted.parallel_tool_calls,
        "previous_response_id": None,
        "reasoning": {"effort": wanted.reasoning.effort, "summary": None},
        "store": False,
        "temperature": wanted.temperature,
        "text": {"format": wanted.text.format or {"type": "text"}},
        "tool_choice": wanted.tool_choice or "auto",
        "tools": chosen.stated,
        "top_p": wanted.top_p,
        "truncation": "disabled",
    }
