"""A running job's answers as events: bytes become text, and text becomes blocks."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, Generic, TypeVar

import trio

from inferd.backend import (
    Done,
    DoneV2,
    MalformedToolCall,
    Prepared,
    Progress,
    Reuse,
    Text,
    Thinking,
    Token,
    TokenEvent,
    TokenEventV2,
    ToolUse,
)
from inferd.dialects.dialect import Dialect
from inferd.engine.mailbox import Mailbox
from inferd.engine.session import Answer, Prefilled
from inferd.errors import InternalError, InvalidRequestError
from inferd.ipc import Ended, Failed
from inferd.job import GenerateJob
from inferd.output.blocks import BlockParser, Said
from inferd.output.stops import StopMatcher
from inferd.output.utf8 import TextDecoder
from inferd.wire.responses import Guesses, Logprob, StopReasonV2, Usage, UsageV2

E = TypeVar("E", TokenEvent, TokenEventV2)


class _Stream(Generic[E]):
    """What both kinds of stream do: whole characters, the count, and the end.

    Stop strings are looked for in the text that goes out, and end it: with v1 that is
    all that the model writes, with v2 it is each run of text. A thought may quote a stop
    string, and a call may hold it: neither is the text that a client wants cut off, and
    what stands between them is markers that no client ever sees.
    """

    def __init__(self, box: Mailbox[Answer], prepared: Prepared[GenerateJob]) -> None:
        self._box = box
        self._job = prepared.job
        self._input_tokens = prepared.input_tokens
        self._decoder = TextDecoder()
        self._stops = StopMatcher(prepared.job.stops)
        self._is_over = False
        self.n_tokens = 0
        self.first_token_at: float | None = None
        self.warnings: Sequence[MalformedToolCall] = ()
        self.reuse = Reuse()
        self.guesses = Guesses()

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
                events = list(self._said(self._decoder.feed(answer)))
                if self._stops.matched is not None:
                    events += self._ended(self._at_stop())
                return events
            case Ended():
                events = list(self._said(self._decoder.finish()))
                events += self._rest(answer)
                events += self._ended(answer)
                return events
            case Prefilled(processed):
                return [Progress(processed, self._input_tokens)]
            case Logprob() | Reuse() | Guesses():
                self._noted(answer)
                return []
            case Failed(reason=reason, by_request=by_request):
                raise (
                    InvalidRequestError(reason) if by_request else InternalError(reason)
                )
            case _:
                raise InternalError("the worker answered a run with something else")

    def _ended(self, end: Ended) -> Sequence[E]:
        self._is_over = True
        return [self._done(end)]

    def _at_stop(self) -> Ended:
        usage = Usage(self._input_tokens, self.n_tokens, self.reuse.cached_tokens)
        return Ended(ticket=0, stop_reason="end", usage=usage)

    def _structure_complete(self, end: Ended) -> bool | None:
        if not self._job.tells_structure:
            return None
        return end.structure_complete if self._stops.matched is None else False

    def _noted(self, told: Logprob | Reuse | Guesses) -> None:
        """Take what is told before the text that it belongs to."""
        match told:
            case Reuse():
                self.reuse = told
            case Guesses():
                self.guesses += told
            case Logprob():
                pass  # no block to go out with

    @abstractmethod
    def _said(self, text: str) -> Sequence[E]:
        """Make events of text, up to a stop string."""

    @abstractmethod
    def _rest(self, end: Ended) -> Sequence[E]:
        """Make events of what was held back, up to a stop string."""

    @abstractmethod
    def _done(self, end: Ended) -> E:
        """Make the last event."""


class TextStream(_Stream[TokenEvent]):
    """v1: all that the model writes is text."""

    def _said(self, text: str) -> Sequence[TokenEvent]:
        safe = self._stops.feed(text)
        return [Token(safe)] if safe else []

    def _rest(self, end: Ended) -> Sequence[TokenEvent]:  # noqa: ARG002  # v2 needs it
        safe = self._stops.finish()
        return [Token(safe)] if safe else []

    def _done(self, end: Ended) -> TokenEvent:
        return Done(
            stop_reason=end.stop_reason if self._stops.matched is None else "end",
            usage=end.usage,
            structure_complete=self._structure_complete(end),
        )


_REASONS: Final[dict[str, StopReasonV2]] = {"end": "end_turn", "length": "max_tokens"}


class BlockStream(_Stream[TokenEventV2]):
    """v2: thoughts and calls are told apart from text.

    Thoughts are thoughts whether they were asked for or not.
    """

    def __init__(
        self,
        box: Mailbox[Answer],
        prepared: Prepared[GenerateJob],
        dialect: Dialect,
    ) -> None:
        super().__init__(box, prepared)
        self._parser = BlockParser(
            dialect.regions,
            self._job.tools,
            opens_thought=prepared.opens_thought,
            calls_tools=self._job.may_call,
        )
        self._warnings: list[MalformedToolCall] = []
        self.warnings = self._warnings
        self._logprobs: list[Logprob] = []  # of tokens that no block has yet
        self._text_logprobs: list[Logprob] = []  # of text that no event has yet
        self._has_called = False

    def _noted(self, told: Logprob | Reuse | Guesses) -> None:
        super()._noted(told)
        if isinstance(told, Logprob):
            self._logprobs.append(told)

    def _said(self, text: str) -> Sequence[TokenEventV2]:
        n_markers = self._parser.n_markers
        said = self._parser.feed(text)
        if self._parser.n_markers != n_markers:  # the tokens so far were the marker's
            has_text = any(isinstance(each, Text) for each in said)
            self._logprobs = self._logprobs[-1:] if has_text else []
        return [event for each in said for event in self._passed(each)]

    def _rest(self, end: Ended) -> Sequence[TokenEventV2]:
        said = self._parser.finish(was_cut=end.stop_reason == "length")
        events = [event for each in said for event in self._passed(each)]
        return [*events, *self._end_of_text()]

    def _passed(self, said: Said) -> Iterator[TokenEventV2]:
        """Give what goes out of what was said: nothing after a stop string."""
        if self._stops.matched is not None:
            return
        match said:
            case MalformedToolCall():
                self._warnings.append(said)
            case Text(delta):
                self._text_logprobs += self._logprobs
                self._logprobs = []
                yield from self._text(self._stops.feed(delta))
            case Thinking() | ToolUse():
                # A thought may be long, and its last token hold text.
                del self._logprobs[:-1]
                yield from self._end_of_text()
                if self._stops.matched is None:
                    self._has_called |= isinstance(said, ToolUse)
                    yield said

    def _end_of_text(self) -> Iterator[TokenEventV2]:
        """Give what was held back: no stop string goes on after a thought or a call."""
        held = self._stops.finish()
        if held and self._stops.matched is None:
            self._stops = StopMatcher(self._job.stops)
        yield from self._text(held)

    def _text(self, text: str) -> Iterator[TokenEventV2]:
        if text:
            yield Text(text, tuple(self._text_logprobs))
            self._text_logprobs = []

    def _done(self, end: Ended) -> TokenEventV2:
        usage = end.usage
        return DoneV2(
            stop_reason=self._reason(end),
            usage=UsageV2(
                usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens
            ),
            stop_sequence=self._stops.matched,
            stop_token_id=end.stop_token_id,
            structure_complete=self._structure_complete(end),
            warnings=tuple(self.warnings),
        )

    def _reason(self, end: Ended) -> StopReasonV2:
        if self._has_called:
            return "tool_use"
        if self._stops.matched is not None or end.stop_token_id is not None:
            return "stop_sequence"
        return _REASONS[end.stop_reason]
