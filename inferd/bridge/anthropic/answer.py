"""The answer to a request for a message: its events, or one message."""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec
from msgspec import Struct, UnsetType

from inferd.bridge.translation import sse
from inferd.bridge.translation.generated import GeneratedAnswer
from inferd.wire.responses import BlockFrame, TextDelta, ThinkingDelta, ToolCall

SIGNATURE: Final = "unsigned"
"""Of reasoning: clients expect one that they send back, and none is checked."""
Fields = dict[str, object]
_NOT_COUNTED: Final[Fields] = dict.fromkeys(
    (
        *("cache_creation", "inference_geo", "output_tokens_details"),
        *("server_tool_use", "service_tier"),
    )
)
"""What the API's description requires of usage, and lets be ``null``."""
Kind = Literal["text", "thinking"]


class MessageForm(Struct, frozen=True, kw_only=True):
    """What a request says of the form of its answer."""

    request_id: str
    model: str
    """As the request names it, which answers repeat."""
    allows_one_call: bool = False
    omits_thinking: bool = False
    is_prefill: bool = False
    """Whether only the prompt is computed."""


class MessageAnswer(GeneratedAnswer):
    """The events of an answer, and all of it."""

    def __init__(self, form: MessageForm) -> None:
        super().__init__(allows_one_call=form.allows_one_call)
        self._form = form
        self._content: list[Fields] = []
        """The blocks that have ended."""
        self._open: Kind | None = None
        """The block that has not."""
        self._parts: list[str] = []
        """Its text."""
        self._has_begun = False

    def end(self) -> Iterator[bytes]:
        """Yield the events that end a stream."""
        yield _event("message_delta", delta=self._stop(), usage=self._usage())
        yield _event("message_stop")

    def whole(self) -> bytes:
        """Return the whole message."""
        return msgspec.json.encode(self._message())

    def _begin(self) -> Iterator[bytes]:
        """Yield the first event, once."""
        if not self._has_begun:
            self._has_begun = True
            yield _event("message_start", message=self._message())

    def _message(self) -> Fields:
        """Return the message as far as it is known."""
        model = self._form.model
        return {
            "id": f"msg_{self._form.request_id.removeprefix('req_')}",
            "type": "message",
            "role": "assistant",
            "model": model or (self._done.backend if self._done else ""),
            "content": self._content,
            **self._stop(),
            "usage": self._usage(),
            "container": None,
        }

    def _stop(self) -> Fields:
        if self._done is None:
            return {"stop_reason": None, "stop_sequence": None, "stop_details": None}
        found = self._done.stop_sequence
        is_stop = self._reason == "stop_sequence" and not isinstance(found, UnsetType)
        return {
            "stop_reason": "max_tokens" if self._form.is_prefill else self._reason,
            "stop_sequence": found if is_stop else None,
            "stop_details": None,
        }

    def _usage(self) -> Fields:
        """Return the counts; what of the prompt was cached is known at the end alone."""
        usage = self._done.usage if self._done else None
        n_cached = usage.cached_tokens if usage else 0
        return {
            "input_tokens": usage.input_tokens - n_cached if usage else self._n_prompt,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": n_cached,
            "output_tokens": usage.output_tokens if usage else 0,
            **_NOT_COUNTED,
        }

    # --- blocks -----------------------------------------------------------------------

    def _take(self, frame: BlockFrame) -> Iterator[bytes]:
        yield from self._begin()
        match frame.block:
            case TextDelta(delta=text):
                yield from self._open_block("text", {"text": "", "citations": None})
                self._parts.append(text)
                yield self._delta("text_delta", text=text)
            case ThinkingDelta(delta=text):
                empty: Fields = {"thinking": "", "signature": ""}
                yield from self._open_block("thinking", empty)
                if not self._form.omits_thinking:
                    self._parts.append(text)
                    yield self._delta("thinking_delta", thinking=text)
            case ToolCall() as call:
                yield from self._close_block()
                yield from self._call(call)

    def _close(self, reason: str) -> Iterator[bytes]:
        del reason
        yield from self._begin()
        yield from self._close_block()

    def _open_block(self, kind: Kind, empty: Fields) -> Iterator[bytes]:
        """Begin a block, unless one of this kind has begun."""
        if self._open == kind:
            return
        yield from self._close_block()
        self._open = kind
        yield self._start({"type": kind, **empty})

    def _close_block(self) -> Iterator[bytes]:
        """End the block that has begun, if there is one."""
        if self._open is None:
            return
        block: Fields = {"type": self._open, self._open: "".join(self._parts)}
        if self._open == "text":
            block["citations"] = None
        else:
            block["signature"] = SIGNATURE
            yield self._delta("signature_delta", signature=SIGNATURE)
        self._open = None
        self._parts.clear()
        yield from self._end_block(block)

    def _call(self, call: ToolCall) -> Iterator[bytes]:
        """Yield a call as clients assemble it: its name, then its input."""
        # The daemon's ids begin anew with each answer.
        name = f"{self._form.request_id.removeprefix('req_')}_{len(self._content)}"
        block: Fields = {"type": "tool_use", "id": f"toolu_{name}", "name": call.name}
        block["caller"] = {"type": "direct"}
        yield self._start({**block, "input": {}})
        text = msgspec.json.encode(call.input).decode()
        yield self._delta("input_json_delta", partial_json=text)
        yield from self._end_block({**block, "input": call.input})

    def _start(self, empty: Fields) -> bytes:
        index = len(self._content)
        return _event("content_block_start", index=index, content_block=empty)

    def _delta(self, kind: str, **fields: str) -> bytes:
        delta = {"type": kind, **fields}
        return _event("content_block_delta", index=len(self._content), delta=delta)

    def _end_block(self, block: Fields) -> Iterator[bytes]:
        yield _event("content_block_stop", index=len(self._content))
        self._content.append(block)


def _event(kind: str, **fields: object) -> bytes:
    return sse.event(msgspec.json.encode({"type": kind, **fields}), kind)
