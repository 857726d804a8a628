"""A running job's answers as events: bytes become text, and text becomes blocks."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import trio

from inferd.backend import Prepared, Reuse
from inferd.dialects.dialect import Dialect
from inferd.engine.answers import Answer, Prefilled
from inferd.engine.mailbox import Mailbox
from inferd.engine.stream import REASONS_V2, AnswerStream, E, usage_v2
from inferd.errors import InternalError
from inferd.events import (
    Done,
    DoneV2,
    MalformedToolCall,
    Progress,
    Text,
    Thinking,
    Token,
    TokenEvent,
    TokenEventV2,
    ToolUse,
)
from inferd.ipc import Ended
from inferd.job import GenerateJob
from inferd.output.blocks import BlockParser, Said
from inferd.output.shares import Shares
from inferd.output.stops import StopMatcher
from inferd.output.utf8 import TextDecoder
from inferd.wire.responses import Guesses, Logprob, StopReasonV2, Usage


class _GeneratedStream(AnswerStream[E]):
    """What both kinds of generated text share: whole characters, the count, and the end.

    Stop strings are looked for in the text that goes out, and end it: with v1 that is
    all that the model writes, with v2 it is each run of text. A thought may quote a stop
    string, and a call may hold it: neither is the text that a client wants cut off, and
    what stands between them is markers that no client ever sees.
    """

    def __init__(self, box: Mailbox[Answer], prepared: Prepared[GenerateJob]) -> None:
        super().__init__(box)
        self._job = prepared.job
        self._input_tokens = prepared.input_tokens
        self._decoder = TextDecoder()
        self._stops = StopMatcher(prepared.job.stops)

    def _events_of(self, answer: Answer) -> Sequence[E]:
        match answer:
            case bytes():
                if not self.n_tokens:
                    self.first_token_at = trio.current_time()
                self.n_tokens += 1
                events = list(self._said(self._decoder.feed(self._heard(answer))))
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
        is_whole = self._stops.matched is None and not self.warnings
        return end.structure_complete if is_whole else False

    def _heard(self, piece: bytes) -> bytes:
        """Give what is heard of a piece."""
        return piece

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


class TextStream(_GeneratedStream[TokenEvent]):
    """v1: all that the model writes is text, but for markers that are no text.

    Args:
        box: of the job's answers.
        prepared: the job.
        marker_tokens: pieces of the tokens that are left out.
    """

    def __init__(
        self,
        box: Mailbox[Answer],
        prepared: Prepared[GenerateJob],
        marker_tokens: frozenset[bytes] = frozenset(),
    ) -> None:
        super().__init__(box, prepared)
        self._marker_tokens = marker_tokens

    def _heard(self, piece: bytes) -> bytes:
        return b"" if piece in self._marker_tokens else piece

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


class BlockStream(_GeneratedStream[TokenEventV2]):
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
        is_structured = self._job.has_structured_text
        has_thoughts = self._job.thinks or prepared.open_thought or not is_structured
        self._parser = BlockParser(
            [
                each
                for each in dialect.regions
                if has_thoughts or each.holds != "thought"
            ],
            self._job.tools,
            open_thought=prepared.open_thought,
            calls_tools=self._job.may_call
            and not (is_structured and not self._job.tools),
            is_structured=is_structured,
        )
        self._warnings: list[MalformedToolCall] = []
        self.warnings = self._warnings
        self._noted_last: list[Logprob] = []  # of the piece that comes next
        self._written = Shares[Logprob]()  # of what the parser has not told apart
        self._to_send = Shares[Logprob]()  # of text that no event has yet
        self._has_called = False

    def _noted(self, told: Logprob | Reuse | Guesses) -> None:
        super()._noted(told)
        if isinstance(told, Logprob):
            self._noted_last.append(told)

    def _said(self, text: str) -> Sequence[TokenEventV2]:
        if self._job.n_alternatives:
            self._written.add(self._noted_last, len(text))
            self._noted_last = []
        said = self._parser.feed(text)
        self._share_out()
        return [event for each in said for event in self._passed(each)]

    def _share_out(self) -> None:
        """Give text the tokens that it is made of, and drop those of all else."""
        runs = self._parser.runs()
        for n_chars, is_text in runs if self._job.n_alternatives else ():
            if not is_text:
                self._written.skip(n_chars)
                continue
            for share in self._written.take(n_chars):
                self._to_send.add(*share)

    def _rest(self, end: Ended) -> Sequence[TokenEventV2]:
        said = self._parser.finish(was_cut=end.stop_reason == "length")
        self._share_out()
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
                yield from self._text(self._stops.feed(delta))
            case Thinking() | ToolUse():
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
            shares = self._to_send.take(len(text))
            yield Text(text, tuple(each for share in shares for each in share.tokens))

    def _done(self, end: Ended) -> TokenEventV2:
        return DoneV2(
            stop_reason=self._reason(end),
            usage=usage_v2(end.usage),
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
        return REASONS_V2[end.stop_reason]
