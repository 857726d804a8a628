"""The answer to a request for a message: its events, or one message."""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec
from msgspec import Struct, UnsetType

from inferd.bridge.translation import sse
from inferd.bridge.translation.cost import AnswerCost
from inferd.bridge.translation.endings import stop_reason
from inferd.bridge.translation.question import DaemonFrame
from inferd.client.frames import ClientBlocksDone
from inferd.wire.responses import (
    BlockFrame,
    ProgressFrame,
    TextDelta,
    ThinkingDelta,
    ToolCall,
)

SIGNATURE: Final = "unsigned"
"""Of reasoning: clients expect one that they send back, and none is checked."""
Fields = dict[str, object]
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


class MessageAnswer:
    """The events of an answer, and all of it."""

    def __init__(self, form: MessageForm) -> None:
        self._form = form
        self._content: list[Fields] = []
        """The blocks that have ended."""
        self._open: Kind | None = None
        """The block that has not."""
        self._parts: list[str] = []
        """Its text."""
        self._cost = AnswerCost()
        self._has_begun = False
        self._has_call = False
        self._n_prompt = 0
        """Tokens of the prompt, as far as they are known before the end."""
        self._done: ClientBlocksDone | None = None
        self._reason = ""

    @property
    def has_enough(self) -> bool:
        """Whether the one call that is wanted has come."""
        return self._form.allows_one_call and self._has_call

    @property
    def n_tokens(self) -> int:
        """Tokens of the prompt and the answer; of one that was cut, those that have come."""
        return self._cost.n_tokens

    def add(self, frame: DaemonFrame) -> Iterator[bytes]:
        """Take a frame; yield the events that follow from it.

        Raises:
            BridgeError: the answer ends without being complete.
        """
        self._cost.take(frame)
        match frame:
            case BlockFrame(block=block) if not self.has_enough:
                yield from self._begin()
                yield from self._take(block)
            case ProgressFrame(total=int(total)):
                self._n_prompt = total
            case ClientBlocksDone():
                self._reason = stop_reason(frame, was_enough=self.has_enough)
                self._done = frame
                yield from self._begin()
                yield from self._close()
            case _:
                pass

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
        }

    def _stop(self) -> Fields:
        if self._done is None:
            return {"stop_reason": None, "stop_sequence": None}
        found = self._done.stop_sequence
        is_stop = self._reason == "stop_sequence" and not isinstance(found, UnsetType)
        return {
            "stop_reason": "max_tokens" if self._form.is_prefill else self._reason,
            "stop_sequence": found if is_stop else None,
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
        }

    # --- blocks -----------------------------------------------------------------------

    def _take(self, block: TextDelta | ThinkingDelta | ToolCall) -> Iterator[bytes]:
        match block:
            case TextDelta(delta=text):
                yield from self._open_block("text", {"text": ""})
                self._parts.append(text)
                yield self._delta("text_delta", text=text)
            case ThinkingDelta(delta=text):
                empty: Fields = {"thinking": "", "signature": ""}
                yield from self._open_block("thinking", empty)
                if not self._form.omits_thinking:
                    self._parts.append(text)
                    yield self._delta("thinking_delta", thinking=text)
            case ToolCall():
                yield from self._close()
                yield from self._call(block)

    def _open_block(self, kind: Kind, empty: Fields) -> Iterator[bytes]:
        """Begin a block, unless one of this kind has begun."""
        if self._open == kind:
            return
        yield from self._close()
        self._open = kind
        yield self._start({"type": kind, **empty})

    def _close(self) -> Iterator[bytes]:
        """End the block that has begun, if there is one."""
        if self._open is None:
            return
        block: Fields = {"type": self._open, self._open: "".join(self._parts)}
        if self._open == "thinking":
            block["signature"] = SIGNATURE
            yield self._delta("signature_delta", signature=SIGNATURE)
        self._open = None
        self._parts.clear()
        yield from self._end_block(block)

    def _call(self, call: ToolCall) -> Iterator[bytes]:
        """Yield a call as clients assemble it: its name, then its input."""
        self._has_call = True
        # The daemon's ids begin anew with each answer.
        name = f"{self._form.request_id.removeprefix('req_')}_{len(self._content)}"
        block = {"type": "tool_use", "id": f"toolu_{name}", "name": call.name}
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
