"""Completions of a prompt: a chat of one message, in the older form."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Final

import msgspec
from msgspec import UNSET

from inferd.bridge.openai.chat_request import (
    SamplingFields,
    includes_usage,
    with_sampling,
)
from inferd.bridge.openai.endings import FINISH_REASONS
from inferd.bridge.openai.tables import COMPLETIONS
from inferd.bridge.openai.usage import usage_of
from inferd.bridge.translation.body import read_body
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.generated import GeneratedAnswer
from inferd.bridge.translation.question import Asked, Question
from inferd.bridge.translation.sse import event
from inferd.wire.blocks import BlocksRequest, Message, TextBlock
from inferd.wire.requests import U32
from inferd.wire.responses import BlockFrame, TextDelta

DEFAULT_TOKENS: Final = 16
"""Tokens of an answer for which the request sets no bound, as in OpenAI's API."""
_NAMES: Final = {
    "messages": "prompt",
    "input_tokens": "prompt",
    "keep_alive_s": "keep_alive",
}
_Tokens = Annotated[list[U32], msgspec.Meta(min_length=1)]
Fields = dict[str, object]


class CompletionRequest(SamplingFields, frozen=True, kw_only=True):
    """The honoured fields of a request for a completion."""

    prompt: str | list[object]


def ask_completion(body: bytes, asked: Asked) -> Question:
    """Translate a request for a completion.

    Raises:
        BridgeError: it has something that is not served, or that contradicts itself.
    """
    wanted = read_body(body, COMPLETIONS, CompletionRequest)
    prompt = _prompt(wanted.prompt)
    request = BlocksRequest(
        id=asked.request_id,
        messages=UNSET
        if isinstance(prompt, list)
        else [Message("user", [TextBlock(prompt)])],
        input_tokens=prompt if isinstance(prompt, list) else None,
        max_tokens=wanted.max_tokens or DEFAULT_TOKENS,
    )
    answer = CompletionAnswer(
        asked, wanted.model or "", includes_usage=includes_usage(wanted)
    )
    return Question(
        with_sampling(request, wanted), answer, wanted.stream, field_names=_NAMES
    )


def _prompt(prompt: str | list[object]) -> str | list[int]:
    """Return the one prompt of a request, a text or tokens."""
    match prompt:
        case str():
            return prompt
        case [str() as text]:
            return text
        case [list()]:
            return _tokens(prompt[0])
        case _:
            return _tokens(prompt)


def _tokens(tokens: object) -> list[int]:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(tokens, _Tokens)
    raise BridgeError(
        Reason.UNSUPPORTED,
        "prompt: one text, or the tokens of one, are supported; several are not",
        param="prompt",
    )


class CompletionAnswer(GeneratedAnswer):
    """The chunks of a completion, and all of it; reasoning is left out."""

    def __init__(self, asked: Asked, model: str, *, includes_usage: bool) -> None:
        super().__init__()
        self._asked = asked
        self._model = model
        self._includes_usage = includes_usage
        self._text: list[str] = []

    def end(self) -> Iterator[bytes]:
        """Yield the chunks that end a stream."""
        yield event(self._fields("", FINISH_REASONS[self._reason]))
        if self._includes_usage and self._done is not None:
            fields = {**self._head(), "choices": []}
            fields["usage"] = usage_of(self._done.usage)
            yield event(msgspec.json.encode(fields))
        yield event(b"[DONE]")

    def whole(self) -> bytes:
        """Return the whole completion."""
        fields = {
            **self._head(),
            "choices": [_choice("".join(self._text), FINISH_REASONS[self._reason])],
        }
        if self._done is not None:
            fields["usage"] = usage_of(self._done.usage)
            fields["model"] = self._model or self._done.backend
        return msgspec.json.encode(fields)

    def _take(self, frame: BlockFrame) -> Iterator[bytes]:
        if isinstance(frame.block, TextDelta):
            self._text.append(frame.block.delta)
            yield event(self._fields(frame.block.delta, None))

    def _fields(self, text: str, reason: str | None) -> bytes:
        fields = {**self._head(), "choices": [_choice(text, reason)]}
        if self._includes_usage:
            fields["usage"] = None
        return msgspec.json.encode(fields)

    def _head(self) -> Fields:
        return {
            "id": f"cmpl-{self._asked.request_id.removeprefix('req_')}",
            "object": "text_completion",
            "created": self._asked.created_s,
            "model": self._model,
        }


def _choice(text: str, reason: str | None) -> Fields:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
