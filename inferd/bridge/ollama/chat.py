"""A request for a chat, and the daemon's request that it becomes."""

from msgspec import field
from msgspec.structs import replace

from inferd.bridge.ollama.answer import AnswerLines, LineForm
from inferd.bridge.ollama.durations import is_unload
from inferd.bridge.ollama.messages import (
    OllamaMessage,
    OllamaTool,
    to_messages,
    to_tools,
)
from inferd.bridge.ollama.sampling import (
    NAMES,
    GenerationFields,
    other_names,
    read_options,
    reasons_if_able,
    with_sampling,
)
from inferd.bridge.ollama.tables import CHAT
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.media import MediaOfRequest
from inferd.bridge.translation.question import Asked, Question
from inferd.wire.blocks import BlocksRequest, Message, TextBlock


class OllamaChat(GenerationFields, frozen=True, kw_only=True):
    """The honoured fields of a chat."""

    messages: list[OllamaMessage] = field(default_factory=list)
    tools: list[OllamaTool] = field(default_factory=list)


def ask_chat(body: bytes, asked: Asked) -> Question:
    """Translate a request for a chat; one without messages loads its model.

    Raises:
        BridgeError: it has something that is not served, or that contradicts itself.
    """
    wanted = read_body(body, CHAT, OllamaChat)
    media = MediaOfRequest()
    request = BlocksRequest(
        id=asked.request_id,
        messages=to_messages(wanted.messages, media),
        tools=to_tools(wanted.tools),
    )
    return to_question(request, wanted, asked, media, is_chat=True)


def to_question(
    request: BlocksRequest,
    wanted: GenerationFields,
    asked: Asked,
    media: MediaOfRequest,
    *,
    is_chat: bool,
) -> Question:
    """Complete a request that has its prompt; one without a prompt loads its model.

    Raises:
        BridgeError: a field has something that is not served.
    """
    options = read_options(wanted.options)
    complete = with_sampling(request, wanted, options, asked)
    is_load = not request.messages
    load_reason = "unload" if is_unload(wanted.keep_alive) else "load"
    form = LineForm(
        request_id=asked.request_id,
        created_s=asked.created_s,
        model=wanted.model,
        is_chat=is_chat,
        has_logprobs=wanted.logprobs,
        n_alternatives=wanted.top_logprobs or 0,
        done_reason=load_reason if is_load else "",
    )
    return Question(
        _loading(complete) if is_load else complete,
        AnswerLines(form),
        wanted.stream,
        field_names=NAMES if is_chat else {**NAMES, "messages": "prompt"},
        media=() if is_load else media.found,
        other_names=other_names(wanted.model),
        reasons_if_able=reasons_if_able(wanted) and not is_load,
    )


def _loading(request: BlocksRequest) -> BlocksRequest:
    """Return a request that only has its model loaded: nothing of it is kept."""
    return replace(
        request,
        messages=[Message("user", [TextBlock(".")])],
        tools=[],
        response_format=None,
        thinking=None,
        logprobs=None,
        max_tokens=None,
        prefill_only=True,
        cache="off",
    )
