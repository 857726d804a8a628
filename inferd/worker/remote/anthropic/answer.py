"""A streamed answer of the Messages API as pieces and an end.

Source: ``anthropic.types.RawMessageStreamEvent`` of the package ``anthropic``. Events, blocks
and deltas of other types are skipped: the API adds some from time to time.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from inferd.wire.responses import StopReason
from inferd.worker.remote.anthropic.errors import error_in_answer
from inferd.worker.remote.conversation.reader import AnswerBase, Counts, decode_part
from inferd.worker.remote.failure import RemoteError, quote

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
_NO_INPUT: Final = (msgspec.Raw(b"{}"), msgspec.Raw(b"null"))


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Message(Struct):
    model: str | None = None
    usage: _Usage | None = None


class _Block(Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    name: str | None = None
    input: msgspec.Raw = _NO_INPUT[0]


class _Delta(Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Event(Struct):
    type: str
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None


_EVENT: Final = msgspec.json.Decoder(_Event)


class AnthropicReader(AnswerBase):
    """Reads the events of one answer."""

    def read(self, data: bytes) -> Sequence[bytes]:
        """Read the data of an event; return the pieces of the answer in it.

        Raises:
            RemoteError: it is no part of an answer, or reports an error.
        """
        event = decode_part(_EVENT, data)
        match event:
            case _Event(type="error"):
                raise error_in_answer(data)
            case _Event(type="message_start", message=_Message() as message):
                self._check_model(message.model)
                self._count(message.usage)
            case _Event(type="content_block_start", content_block=_Block() as block):
                return self._start(event.index, block)
            case _Event(type="content_block_delta", delta=_Delta() as delta):
                return self._read_delta(event.index, delta)
            case _Event(type="message_delta", delta=_Delta() as delta):
                self._count(event.usage)
                self._end(delta.stop_reason)
            case _Event(type="message_stop"):
                self.is_over = True
            case _:
                pass  # a ping, the end of a block, or a type of a later version
        return []

    def _start(self, index: int, block: _Block) -> list[bytes]:
        if block.type == "tool_use":
            given = "" if block.input in _NO_INPUT else bytes(block.input).decode()
            self._writer.call(index, block.name or "", given)
            return []
        return self._write(thought=block.thinking, text=block.text)

    def _read_delta(self, index: int, delta: _Delta) -> list[bytes]:
        match delta.type:
            case "text_delta":
                return self._write(text=delta.text)
            case "thinking_delta":
                return self._write(thought=delta.thinking)
            case "input_json_delta" if delta.partial_json:
                self._writer.call(index, "", delta.partial_json)
        return []

    def _count(self, usage: _Usage | None) -> None:
        """Take counts over; those of a later event stand for the whole answer."""
        if usage is None:
            return
        prompt, answer, cached = self._counts
        if usage.input_tokens is not None:
            cached = usage.cache_read_input_tokens or 0
            created = usage.cache_creation_input_tokens or 0
            prompt = usage.input_tokens + created + cached
        if usage.output_tokens is not None:
            answer = usage.output_tokens
        self._counts = Counts(prompt, answer, cached)

    def _end(self, reason: str | None) -> None:
        if reason is None:
            return
        if reason == "refusal":
            raise RemoteError(
                "the remote's content filter withholds the rest", by_request=True
            )
        self._stop_reason = _STOP_REASONS.get(reason)
        if self._stop_reason is None:
            raise RemoteError(f"the remote ended with the reason {quote(reason)!r}")
