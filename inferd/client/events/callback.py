"""The events, and how parts of an answer become such."""

from collections.abc import Callable, Iterator
from enum import StrEnum

import msgspec

from inferd.client.code_blocks import Code, CodeBlocks, Part, Prose
from inferd.client.core.answer import (
    Event,
    FinalAnswer,
    ProgressEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
)


class CallbackEvent(StrEnum):
    """What a callback is told of."""

    CONTENT = "content"
    """Text of the answer, outside code blocks."""
    THINKING = "thinking"
    """Reasoning, where the session shows it."""
    TOOL_CALL = "tool_call"
    """A whole call: its arguments as JSON, the tool's name, the call's id."""
    TOOL_RESULT = "tool_result"
    """The result of a call that was added: its text, the tool's name, the call's id."""
    USER_PROMPT = "user_prompt"
    """What a user has said, when it is added."""
    SYSTEM = "system"
    """Where the request is: in the queue, or waiting for a model."""
    ERROR = "error"
    """A failure: its text, and its kind as the name."""
    STOP = "stop"
    """The end: ``stop``, ``length``, ``tool_calls``, ``cancelled`` or ``error``."""
    CODEBLOCK = "codeblock"
    """Text of a code block, without its fences."""
    STATS = "stats"
    """Tokens and speeds of the answer, as JSON."""


EventCallback = Callable[[CallbackEvent, str, str, str], bool]
"""Called with the event, its content, a name and an id; ``False`` cancels the answer."""

Told = tuple[CallbackEvent, str, str, str]
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
}
"""Why an answer has ended, by the daemon's words; others stay as they are."""


def told(event: CallbackEvent, content: str, name: str = "", call_id: str = "") -> Told:
    """Return what a callback is called with."""
    return event, content, name, call_id


class EventReader:
    """Makes events of the parts of one answer.

    Args:
        shows_thinking: whether reasoning is told.
    """

    def __init__(self, *, shows_thinking: bool) -> None:
        self._shows_thinking = shows_thinking
        self._blocks = CodeBlocks()

    def read(self, event: Event) -> Iterator[Told]:
        """Take a part; yield the events that follow from it."""
        match event:
            case TextEvent(text=text):
                yield from _text_events(self._blocks.feed(text))
            case ThinkingEvent(text=text):
                if self._shows_thinking:
                    yield told(CallbackEvent.THINKING, text)
            case ToolCallEvent(id=call_id, name=name):
                yield told(CallbackEvent.TOOL_CALL, arguments_of(event), name, call_id)
            case ProgressEvent(stage="queued" | "loading"):
                yield told(CallbackEvent.SYSTEM, _progress(event))
            case _:
                pass

    def end(self) -> Iterator[Told]:
        """Yield what was held back: the beginning of a line that may have been a fence."""
        yield from _text_events(self._blocks.finish())


def arguments_of(call: ToolCallEvent) -> str:
    """Return the arguments of a call as JSON."""
    return msgspec.json.encode(call.arguments).decode()


def stats_of(answer: FinalAnswer) -> str:
    """Return the statistics of an answer as JSON."""
    fields: dict[str, object] = {
        "prompt_tokens": answer.usage.input_tokens,
        "completion_tokens": answer.usage.output_tokens,
        "cached_tokens": answer.usage.cached_tokens,
    }
    if (timing := answer.timing) is not None:
        n_computed = answer.usage.input_tokens - answer.usage.cached_tokens
        prefill_s = timing.prefill_ms / 1000
        fields["prefill_tokens_per_second"] = (
            round(n_computed / prefill_s, 3) if prefill_s else 0.0
        )
        fields["decode_tokens_per_second"] = timing.tokens_per_second
        fields["total_ms"] = timing.total_ms
    return msgspec.json.encode(fields).decode()


def _text_events(parts: list[Part]) -> Iterator[Told]:
    for part in parts:
        match part:
            case Prose(text=text):
                yield told(CallbackEvent.CONTENT, text)
            case Code(text=text):
                yield told(CallbackEvent.CODEBLOCK, text)
            case _:
                pass


def _progress(event: ProgressEvent) -> str:
    if event.stage == "queued" and event.position is not None:
        return f"queued: {event.position}"
    return f"loading: {event.phase}" if event.phase else event.stage
