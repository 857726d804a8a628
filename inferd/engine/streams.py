"""A running job's answers as events: bytes become text, and text becomes blocks."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Final, Generic, TypeVar

import trio

from inferd.backend import (
    Done,
    DoneV2,
    MalformedToolCall,
    Markers,
    Prepared,
    Progress,
    Text,
    Thinking,
    Token,
    TokenEvent,
    TokenEventV2,
    ToolUse,
)
from inferd.engine.mailbox import Mailbox
from inferd.engine.session import Answer, Prefilled
from inferd.errors import InternalError
from inferd.ipc import Ended, Failed
from inferd.job import GenerateJob
from inferd.output.blocks import BlockParser
from inferd.output.stops import StopMatcher
from inferd.output.utf8 import TextDecoder
from inferd.wire.responses import Logprob, StopReasonV2, Usage, UsageV2

E = TypeVar("E", TokenEvent, TokenEventV2)


class _Stream(Generic[E]):
    """What both kinds of stream do: text without its stop strings, and the count."""

    def __init__(self, box: Mailbox[Answer], prepared: Prepared[GenerateJob]) -> None:
        self._box = box
        self._input_tokens = prepared.input_tokens
        self._decoder = TextDecoder()
        self._stops = StopMatcher(prepared.job.stops)
        self._is_over = False
        self.n_tokens = 0
        self.first_token_at: float | None = None
        self.warnings: Sequence[MalformedToolCall] = ()

    def __aiter__(self) -> AsyncIterator[Sequence[E]]:
        return self

    async def __anext__(self) -> Sequence[E]:
        if self._is_over:
            raise StopAsyncIteration
        events: list[E] = []
        while not events:
            for answer in await self._box.take():
                if not self._is_over:  # a stop string may be found before the last one
                    events += self._events_of(answer)
        return events

    def _events_of(self, answer: Answer) -> Sequence[E]:
        match answer:
            case bytes():
                if not self.n_tokens:
                    self.first_token_at = trio.current_time()
                self.n_tokens += 1
                text = self._stops.feed(self._decoder.feed(answer))
                if self._stops.matched is None:
                    return self._said(text)
                return self._ended(text, self._at_stop())
            case Ended():
                text = self._stops.feed(self._decoder.finish()) + self._stops.finish()
                return self._ended(text, answer)
            case Prefilled(processed):
                return [Progress(processed, self._input_tokens)]
            case Logprob():
                self._noted(answer)
                return []
            case Failed(reason=reason):
                raise InternalError(reason)
            case _:
                raise InternalError("the worker answered a run with something else")

    def _ended(self, text: str, end: Ended) -> Sequence[E]:
        self._is_over = True
        events = list(self._said(text))
        events += self._done(end)
        return events

    def _at_stop(self) -> Ended:
        usage = Usage(self._input_tokens, self.n_tokens)
        return Ended(ticket=0, stop_reason="end", usage=usage)

    def _noted(self, logprob: Logprob) -> None:
        """Take a token's log probability, which comes before its piece."""

    @abstractmethod
    def _said(self, text: str) -> Sequence[E]:
        """Make events of text that may go out."""

    @abstractmethod
    def _done(self, end: Ended) -> Sequence[E]:
        """Make the last events."""


class TextStream(_Stream[TokenEvent]):
    """v1: all that the model writes is text."""

    def _said(self, text: str) -> Sequence[TokenEvent]:
        return [Token(text)] if text else []

    def _done(self, end: Ended) -> Sequence[TokenEvent]:
        why = end.stop_reason if self._stops.matched is None else "end"
        return [Done(stop_reason=why, usage=end.usage)]


_REASONS: Final[dict[str, StopReasonV2]] = {"end": "end_turn", "length": "max_tokens"}


class BlockStream(_Stream[TokenEventV2]):
    """v2: thoughts and calls are told apart from text."""

    def __init__(
        self,
        box: Mailbox[Answer],
        prepared: Prepared[GenerateJob],
        markers: Markers,
    ) -> None:
        super().__init__(box, prepared)
        if not prepared.job.calls_tools:
            markers = Markers(thinking=markers.thinking)
        self._parser = BlockParser(markers)
        self.warnings = self._parser.warnings
        self._logprobs: list[Logprob] = []
        self._has_called = False

    def _noted(self, logprob: Logprob) -> None:
        self._logprobs.append(logprob)

    def _said(self, text: str) -> Sequence[TokenEventV2]:
        n_markers = self._parser.n_markers
        blocks = self._parser.feed(text)
        if self._parser.n_markers != n_markers:  # the tokens so far were the marker's
            has_text = any(isinstance(block, Text) for block in blocks)
            self._logprobs = self._logprobs[-1:] if has_text else []
        return [self._marked(block) for block in blocks]

    def _marked(self, event: Text | Thinking | ToolUse) -> TokenEventV2:
        """Give text the tokens that were read since the last event."""
        self._has_called |= isinstance(event, ToolUse)
        logprobs, self._logprobs = self._logprobs, []
        if isinstance(event, Text) and logprobs:
            return Text(event.delta, tuple(logprobs))
        return event

    def _done(self, end: Ended) -> Sequence[TokenEventV2]:
        rest = [self._marked(event) for event in self._parser.finish()]
        usage = end.usage
        done = DoneV2(
            stop_reason=self._reason(end),
            usage=UsageV2(
                usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens
            ),
            stop_sequence=self._stops.matched,
            stop_token_id=end.stop_token_id,
            warnings=tuple(self._parser.warnings),
        )
        return [*rest, done]

    def _reason(self, end: Ended) -> StopReasonV2:
        if self._has_called:
            return "tool_use"
        if self._stops.matched is not None or end.stop_token_id is not None:
            return "stop_sequence"
        return _REASONS[end.stop_reason]
