"""The answer to a chat: a stream of chunks, or one completion."""

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import msgspec
from msgspec import Struct

from inferd.bridge.openai.endings import FINISH_REASONS
from inferd.bridge.openai.usage import usage_of
from inferd.bridge.translation.generated import GeneratedAnswer
from inferd.bridge.translation.logprobs import stated_logprobs
from inferd.bridge.translation.sse import event
from inferd.wire.responses import BlockFrame, TextDelta, ThinkingDelta, ToolCall

DONE: Final = event(b"[DONE]")
Fields = dict[str, object]


class ChatForm(Struct, frozen=True, kw_only=True):
    """What a request says of the form of its answer."""

    request_id: str
    created_s: int
    model: str
    """As the request names it, which answers repeat."""
    includes_usage: bool = False
    has_logprobs: bool = False
    n_alternatives: int = 0
    """Alternatives of each token; the daemon reports one at least."""
    allows_one_call: bool = False


class ChatAnswer(GeneratedAnswer):
    """The chunks of an answer, and all of it."""

    def __init__(self, form: ChatForm) -> None:
        super().__init__(allows_one_call=form.allows_one_call)
        self._form = form
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[Fields] = []
        self._logprobs: list[Fields] = []
        self._has_begun = False

    def end(self) -> Iterator[bytes]:
        """Yield the chunks that end a stream."""
        yield self._chunk({}, None, FINISH_REASONS[self._reason])
        if self._form.includes_usage and self._done is not None:
            fields = {**self._head("chat.completion.chunk"), "choices": []}
            fields["usage"] = usage_of(self._done.usage)
            yield event(msgspec.json.encode(fields))
        yield DONE

    def whole(self) -> bytes:
        """Return the whole completion."""
        choice: Fields = {
            "index": 0,
            "message": self._message(),
            "logprobs": _listed(self._logprobs) if self._form.has_logprobs else None,
            "finish_reason": FINISH_REASONS[self._reason],
        }
        fields = {**self._head("chat.completion"), "choices": [choice]}
        if self._done is not None:
            fields["usage"] = usage_of(self._done.usage)
            fields["model"] = self._form.model or self._done.backend
        return msgspec.json.encode(fields)

    def _message(self) -> Fields:
        text = "".join(self._text)
        message: Fields = {
            "role": "assistant",
            "content": text if text or not self._calls else None,
            "refusal": None,
        }
        if self._reasoning:
            message |= _reasoning("".join(self._reasoning))
        if self._calls:
            message["tool_calls"] = self._calls
        return message

    def _begin(self) -> Iterator[bytes]:
        """Yield the first chunk, which has the role, once."""
        if not self._has_begun:
            self._has_begun = True
            yield self._chunk({"role": "assistant", "content": ""}, None)

    def _take(self, frame: BlockFrame) -> Iterator[bytes]:
        yield from self._begin()
        logprobs = None
        if self._form.has_logprobs:
            logprobs = stated_logprobs(frame.logprobs, self._form.n_alternatives)
            if isinstance(frame.block, TextDelta):
                self._logprobs += logprobs
        if logprobs is None and isinstance(frame.block, TextDelta):
            self._text.append(frame.block.delta)
            yield self._text_chunk(frame.block.delta)
            return
        for delta in self._deltas(frame):
            yield self._chunk(delta, logprobs or None)

    def _close(self, reason: str) -> Iterator[bytes]:
        del reason
        yield from self._begin()

    def _deltas(self, frame: BlockFrame) -> Iterator[Fields]:
        """Keep a block; yield its deltas."""
        match frame.block:
            case TextDelta(delta=text):
                self._text.append(text)
                yield {"content": text}
            case ThinkingDelta(delta=text):
                self._reasoning.append(text)
                yield _reasoning(text)
            case ToolCall() as call:
                yield from self._call(call)

    def _call(self, call: ToolCall) -> Iterator[Fields]:
        """Keep a call; yield it as clients assemble it: its name, then its arguments."""
        number = len(self._calls)
        arguments = msgspec.json.encode(call.input).decode()
        head: Fields = {
            # Those of the daemon begin anew with each answer.
            "id": f"call_{self._form.request_id.removeprefix('req_')}_{number}",
            "type": "function",
        }
        self._calls.append(
            {**head, "function": {"name": call.name, "arguments": arguments}}
        )
        empty = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": number, **head, "function": empty}]}
        more = {"index": number, "function": {"arguments": arguments}}
        yield {"tool_calls": [more]}

    def _text_chunk(self, text: str) -> bytes:
        """Return a chunk with text alone, of which most answers consist."""
        before, after = self._around_text
        return b"%b%b%b" % (before, msgspec.json.encode(text), after)

    @cached_property
    def _around_text(self) -> tuple[bytes, bytes]:
        """Return what is before and after the text of such a chunk: only that changes."""
        chunk = self._chunk({"content": ""}, None)
        before, _, after = chunk.rpartition(b'""')  # no other is behind it
        return before, after

    def _chunk(
        self, delta: Fields, logprobs: list[Fields] | None, reason: str | None = None
    ) -> bytes:
        choice: Fields = {
            "index": 0,
            "delta": delta,
            "logprobs": None if logprobs is None else _listed(logprobs),
            "finish_reason": reason,
        }
        fields = {**self._head("chat.completion.chunk"), "choices": [choice]}
        if self._form.includes_usage:
            fields["usage"] = None
        return event(msgspec.json.encode(fields))

    def _head(self, kind: str) -> Fields:
        return {
            "id": f"chatcmpl-{self._form.request_id.removeprefix('req_')}",
            "object": kind,
            "created": self._form.created_s,
            "model": self._form.model,
        }


def _reasoning(text: str) -> Fields:
    """Return reasoning under both names that clients look for."""
    return {"reasoning": text, "reasoning_content": text}


def _listed(logprobs: list[Fields]) -> Fields:
    return {"content": logprobs, "refusal": None}
