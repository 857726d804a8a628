"""The answer to a chat or a prompt: lines of JSON, or one object."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct, UnsetType

from inferd.bridge.translation.generated import GeneratedAnswer
from inferd.bridge.translation.logprobs import stated_logprobs
from inferd.wire.responses import BlockFrame, TextDelta, ThinkingDelta, Timing, ToolCall

Fields = dict[str, object]
DONE_REASONS: Final[Mapping[str, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
}
"""By the daemon's reason."""
_NS_PER_MS: Final = 1_000_000


class LineForm(Struct, frozen=True, kw_only=True):
    """What a request says of the form of its answer."""

    request_id: str
    created_s: int
    model: str
    """As the request names it, which answers repeat."""
    is_chat: bool
    has_logprobs: bool = False
    n_alternatives: int = 0
    """Alternatives of each token; the daemon reports one at least."""
    done_reason: str = ""
    """Why a request that generates nothing has ended: ``load`` or ``unload``."""


class AnswerLines(GeneratedAnswer):
    """The lines of an answer, and all of it in one object."""

    def __init__(self, form: LineForm) -> None:
        super().__init__()
        self._form = form
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[Fields] = []
        self._logprobs: list[Fields] = []

    def end(self) -> Iterator[bytes]:
        """Yield the line that ends a stream."""
        yield msgspec.json.encode(self._last({}, [])) + b"\n"

    def whole(self) -> bytes:
        """Return the whole answer."""
        part: Fields = {"content": "".join(self._text)}
        if self._reasoning:
            part["thinking"] = "".join(self._reasoning)
        if self._calls:
            part["tool_calls"] = self._calls
        return msgspec.json.encode(self._last(part, self._logprobs))

    def _take(self, frame: BlockFrame) -> Iterator[bytes]:
        logprobs: list[Fields] = []
        if self._form.has_logprobs:
            logprobs = stated_logprobs(frame.logprobs, self._form.n_alternatives)
            self._logprobs += logprobs
        line = {**self._line(self._part(frame), logprobs), "done": False}
        yield msgspec.json.encode(line) + b"\n"

    def _part(self, frame: BlockFrame) -> Fields:
        """Keep a part of the answer; return its fields."""
        match frame.block:
            case TextDelta(delta=text):
                self._text.append(text)
                return {"content": text}
            case ThinkingDelta(delta=text):
                self._reasoning.append(text)
                return {"thinking": text}
            case ToolCall() as call:
                stated = self._call(call)
                self._calls.append(stated)
                return {"tool_calls": [stated]}

    def _call(self, call: ToolCall) -> Fields:
        number = len(self._calls)
        function = {"index": number, "name": call.name, "arguments": call.input}
        # The daemon's ids begin anew with each answer.
        stem = self._form.request_id.removeprefix("req_")
        return {"id": f"call_{stem}_{number}", "function": function}

    def _last(self, part: Fields, logprobs: list[Fields]) -> Fields:
        reason = self._form.done_reason or DONE_REASONS[self._reason]
        return {
            **self._line(part, logprobs),
            "done": True,
            "done_reason": reason,
            **({} if self._form.done_reason else self._counts()),
        }

    def _line(self, part: Fields, logprobs: list[Fields]) -> Fields:
        form = self._form
        text = part.get("content", "")
        if form.is_chat:
            content: Fields = {"message": {"role": "assistant", "content": "", **part}}
        else:
            content = {"response": text}
            content |= {key: part[key] for key in part if key != "content"}
        line: Fields = {
            "model": form.model,
            "created_at": timestamp(form.created_s),
            **content,
        }
        return {**line, "logprobs": logprobs} if logprobs else line

    def _counts(self) -> Fields:
        """Return the counts of tokens, and times in nanoseconds."""
        assert self._done is not None  # noqa: S101  # asked for after the end
        usage, timing = self._done.usage, self._done.timing
        return {
            **({} if isinstance(timing, UnsetType) else _durations(timing)),
            "prompt_eval_count": usage.input_tokens,
            "eval_count": usage.output_tokens,
        }


def _durations(timing: Timing) -> Fields:
    return {
        "total_duration": round(timing.total_ms * _NS_PER_MS),
        "load_duration": round(timing.queued_ms * _NS_PER_MS),
        "prompt_eval_duration": round(timing.prefill_ms * _NS_PER_MS),
        "eval_duration": round(timing.decode_ms * _NS_PER_MS),
    }


def timestamp(at_s: int) -> str:
    """Return a time as RFC 3339 has it."""
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")
