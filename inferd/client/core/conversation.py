"""Requests of what callers give: a text or messages, and options by name."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from inferd.client.core.failures import ClientError
from inferd.wire.blocks import (
    Attachment,
    BlocksRequest,
    Message,
    NamedTool,
    ResponseFormat,
    TextBlock,
    Tool,
)

AnyMessage = Message | Mapping[str, object]
"""A message: the ``message`` of an answer, or a mapping with ``role`` (``system``, ``user`` or
``assistant``) and ``content``: a text, or blocks as the protocol has them."""

Prompt = str | Sequence[AnyMessage] | Sequence[int]
"""What is asked: the text of one message of a user, or a conversation, oldest first.

For ``chat`` and ``stream`` it may also be ids of the model's tokens, which are then the whole
prompt.
"""


class AnswerOptions(TypedDict, total=False):
    """The options of ``parse`` and ``run_tools``; all may be left out.

    They are the fields of a v2 request; the daemon refuses a value that is out of range with
    ``InvalidRequest``.
    """

    model: str
    """The name or an alias of the backend that must answer."""
    temperature: float
    """0 to 2; 0 always takes the most likely token. Default: the model's, else 1.0."""
    top_p: float
    """Above 0, up to 1: keep the most likely tokens of this total probability."""
    top_k: int
    """Keep this many of the most likely tokens; 0 keeps all."""
    min_p: float
    """0 to 1: drop tokens less probable than this fraction of the most likely one."""
    repeat_penalty: float
    """Above 0, up to 2: divides the score of recent tokens."""
    presence_penalty: float
    """-2 to 2: subtracted once from the score of each recent token."""
    frequency_penalty: float
    """-2 to 2: subtracted from the score of a recent token per occurrence."""
    logit_bias: dict[str, float]
    """Maps token ids, in decimal, to a number added to their score: -100 to 100."""
    seed: int
    """Seed of the sampler, 0 to 4294967294; if omitted, a random one."""
    max_tokens: int
    """Longest answer in tokens. Default 1000."""
    min_tokens: int
    """Tokens before which the model cannot end its turn."""
    stop: list[str]
    """Up to 16 strings of 1 to 256 bytes that end the answer; they are left out of it."""
    stop_token_ids: list[int]
    """Up to 64 tokens that end the answer; they are left out of it."""
    logprobs: int
    """1 to 20: report the log probability of each token and of this many alternatives."""
    token_ids: bool
    """True: tell the ids of the answer's tokens."""
    tool_choice: str | NamedTool
    """``auto``, ``required``, ``none``, or the one tool to call. Default ``auto``."""
    thinking: bool
    """True: ask for a reasoning trace."""
    priority: int
    """-10 to 10: orders this caller's own waiting requests, higher first."""
    deadline_ms: int
    """Milliseconds, at least 1, for waiting and running together."""
    cache: str
    """``auto``, ``off`` or ``discard``: use of cached prefixes. Default ``auto``."""
    progress: bool
    """True: a stream has events of the queue and of the prompt's progress."""
    keep_alive_s: float
    """Seconds without a request after which a model that is loaded on demand may be
    unloaded."""
    min_n_ctx: int
    """Tokens of one request that the model must at least take."""
    principal: str
    """Who is asking, where this user is a gateway of the daemon."""
    strict: bool
    """True: an older daemon refuses the options that it does not know."""


class ChatOptions(AnswerOptions, total=False):
    """The options of ``chat``, ``stream`` and ``count_tokens``; all may be left out."""

    response_format: ResponseFormat
    """The structure that the text of the answer must have; ``parse`` sets it."""
    tools: list[Tool]
    """Tools that the model may call; ``run_tools`` sets them."""
    attachments: list[Attachment]
    """Pictures and recordings that blocks of the messages refer to, with ``bytes``."""
    prefill_only: bool
    """True: process the prompt, which a later request finds in the cache, and generate
    nothing."""


_OPTIONS: Final = frozenset(ChatOptions.__annotations__)


def messages_of(prompt: Prompt) -> list[Message]:
    """Return the messages of a prompt.

    Raises:
        ClientError: a message has no role or content that the protocol knows.
    """
    if isinstance(prompt, str):
        return [Message("user", [TextBlock(prompt)])]
    return [_message(index, each) for index, each in enumerate(prompt)]


def _tokens_of(prompt: Prompt) -> list[int] | None:
    """Return the tokens that a prompt is, ``None`` if it is not."""
    if isinstance(prompt, str):
        return None
    tokens = [each for each in prompt if isinstance(each, int)]
    return tokens if tokens and len(tokens) == len(prompt) else None


def _message(index: int, given: AnyMessage | int) -> Message:
    if isinstance(given, Message):
        return given
    if isinstance(given, int):
        raise ClientError(f"message {index} is a number; tokens cannot be used here")
    fields = dict(given)
    if isinstance(content := fields.get("content"), str):
        fields["content"] = [TextBlock(content)]
    if unknown := sorted(map(str, fields.keys() - {"role", "content"})):
        raise ClientError(f"message {index} has unknown fields: {', '.join(unknown)}")
    try:
        encoded = msgspec.json.encode(fields)
        return msgspec.json.decode(encoded, type=Message)
    except (msgspec.MsgspecError, TypeError) as error:
        raise ClientError(f"message {index}: {error}") from error


def chat_request(
    request_id: str, prompt: Prompt, options: ChatOptions, *, stream: bool
) -> BlocksRequest:
    """Make the request of ``chat`` or ``stream``.

    Raises:
        TypeError: there is no option of that name.
        ClientError: the prompt is not a conversation.
    """
    if unknown := sorted(options.keys() - _OPTIONS):
        raise TypeError(f"there is no option {unknown[0]!r}")
    request = BlocksRequest(id=request_id, stream=stream)
    if tokens := _tokens_of(prompt):
        request = replace(request, input_tokens=tokens)
    else:
        request = replace(request, messages=messages_of(prompt))
    given = {name: value for name, value in options.items() if value is not None}
    return replace(request, **given)


def json_format(schema: Mapping[str, object]) -> ResponseFormat:
    """Return the structure of an answer that conforms to a JSON schema."""
    return ResponseFormat(type="json_schema", schema=Raw(msgspec.json.encode(schema)))
