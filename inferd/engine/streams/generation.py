"""Event streams of generate jobs: bytes become text, and in v2 text becomes blocks."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import trio
from msgspec import UNSET
from msgspec.structs import replace

from inferd.backend.events import (
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
from inferd.backend.interface import CacheReuse, Prepared
from inferd.backend.job import GenerateJob
from inferd.dialects.dialect import Dialect
from inferd.engine.channel.demultiplexer import JobMessage, PrefillProgress, TokenId
from inferd.engine.channel.result_queue import ResultQueue
from inferd.engine.streams.base import STOP_REASONS_V2, AnswerStream, E, to_usage_v2
from inferd.engine.streams.demands import is_cut, unmet_demand
from inferd.errors import InternalError, InvalidRequestError
from inferd.ipc.worker import Ended
from inferd.output.parser import BlockParser, CharRun, ParsedBlock
from inferd.output.stops import StopMatcher
from inferd.output.token_alignment import TokenAlignment
from inferd.output.token_ids import TokenIds
from inferd.output.utf8 import TextDecoder
from inferd.wire.responses import DraftCounts, Logprob, StopReasonV2, Usage


class _GeneratedStream(AnswerStream[E]):
    """Base of both generation streams: whole characters, stop strings, counts and the end.

    Stop strings are searched in the visible text, and end it: in v1 that is all that the
    model generates, in v2 each run of text. Reasoning may quote a stop string, and a tool
    call may contain it: neither is the text that a client wants cut off, and the markers
    between them are never visible.
    """

    def __init__(
        self, results: ResultQueue[JobMessage], prepared: Prepared[GenerateJob]
    ) -> None:
        super().__init__(results)
        self._job = prepared.job
        self._input_tokens = prepared.input_tokens
        self._is_estimate = prepared.is_estimate
        self._decoder = TextDecoder()
        self._stops = StopMatcher(prepared.job.stops)

    def _events_of(self, result: JobMessage) -> Sequence[E]:
        match result:
            case bytes():
                if not self.n_tokens:
                    self.first_token_at = trio.current_time()
                self._count(1)
                events = self._feed(self._decoder.feed(self._visible(result)))
                if self._stops.matched is None:
                    return events
                ended = list(events)
                ended += self._finish(self._at_stop())
                return ended
            case Ended():
                events = list(self._feed(self._decoder.finish()))
                events += self._flush(result)
                events += self._finish(result)
                return events
            case PrefillProgress(processed):
                return [Progress(processed, self._input_tokens)]
            case Logprob() | TokenId() | CacheReuse() | DraftCounts():
                self._note(result)
                return []
            case _:
                raise InternalError(
                    "unexpected message from the worker for a generate job"
                )

    def _finish(self, end: Ended) -> Sequence[E]:
        self._is_over = True
        return [self._done(end)]

    def _at_stop(self) -> Ended:
        usage = Usage(
            self._input_tokens,
            self.n_tokens,
            self.reuse.cached_tokens,
            is_estimate=True if self._is_estimate else UNSET,
        )
        return Ended(ticket=0, stop_reason="end", usage=usage)

    def _structure_complete(self, end: Ended) -> bool | None:
        if not self._job.tells_structure:
            return None
        is_whole = self._stops.matched is None and not self.warnings
        return end.structure_complete if is_whole else False

    def _visible(self, piece: bytes) -> bytes:
        """Return the visible part of a piece."""
        return piece

    def _note(self, result: Logprob | TokenId | CacheReuse | DraftCounts) -> None:
        """Note a result that comes before the text that it belongs to."""
        match result:
            case CacheReuse():
                self.reuse = result
            case DraftCounts():
                self.draft_counts += result
            case Logprob() | TokenId():
                pass  # v1 has no field for it

    @abstractmethod
    def _feed(self, text: str) -> Sequence[E]:
        """Turn text into events; text from a stop string on is dropped."""

    @abstractmethod
    def _flush(self, end: Ended) -> Sequence[E]:
        """Turn text that was held back into events, up to a stop string."""

    @abstractmethod
    def _done(self, end: Ended) -> E:
        """Make the last event."""


class TextStream(_GeneratedStream[TokenEvent]):
    """Event stream in v1: everything is text, except the dialect's marker tokens.

    Args:
        results: of the job.
        prepared: the job.
        marker_tokens: pieces of the tokens that are omitted.
    """

    def __init__(
        self,
        results: ResultQueue[JobMessage],
        prepared: Prepared[GenerateJob],
        marker_tokens: frozenset[bytes] = frozenset(),
    ) -> None:
        super().__init__(results, prepared)
        self._marker_tokens = marker_tokens

    def _visible(self, piece: bytes) -> bytes:
        return b"" if piece in self._marker_tokens else piece

    def _feed(self, text: str) -> Sequence[TokenEvent]:
        safe = self._stops.feed(text)
        return [Token(safe)] if safe else []

    def _flush(self, end: Ended) -> Sequence[TokenEvent]:  # noqa: ARG002  # v2 needs it
        safe = self._stops.finish()
        return [Token(safe)] if safe else []

    def _done(self, end: Ended) -> TokenEvent:
        return Done(
            stop_reason=end.stop_reason if self._stops.matched is None else "end",
            usage=end.usage,
            structure_complete=self._structure_complete(end),
        )


class BlockStream(_GeneratedStream[TokenEventV2]):
    """Event stream in v2: reasoning and tool calls are separated from text.

    Reasoning is recognised whether it was requested or not.
    """

    def __init__(
        self,
        results: ResultQueue[JobMessage],
        prepared: Prepared[GenerateJob],
        dialect: Dialect,
    ) -> None:
        super().__init__(results, prepared)
        is_structured = self._job.has_structured_text
        has_thoughts = self._job.thinks or prepared.open_thought or not is_structured
        self._parser = BlockParser(
            [
                region
                for region in dialect.regions
                if has_thoughts or region.holds != "thought"
            ],
            self._job.tools,
            open_thought=prepared.open_thought,
            calls_tools=self._job.may_call
            and not (is_structured and not self._job.tools),
            is_structured=is_structured,
        )
        self._warnings: list[MalformedToolCall] = []
        self.warnings = self._warnings
        self._next_logprobs: list[Logprob] = []  # of the next piece
        self._unparsed = TokenAlignment[Logprob]()  # of text that is not parsed yet
        self._to_send = TokenAlignment[Logprob]()  # of text that no event has yet
        self._next_ids: list[int] = []  # of the next piece
        self._token_ids = TokenIds()
        self._called: set[str] = set()
        self._has_cut_call = False

    @property
    def unsent_token_ids(self) -> Sequence[int]:
        """Ids of the tokens that no event had so far."""
        return [*self._token_ids.rest(), *self._next_ids]

    def _note(self, result: Logprob | TokenId | CacheReuse | DraftCounts) -> None:
        super()._note(result)
        match result:
            case Logprob():
                self._next_logprobs.append(result)
            case TokenId(id=token):
                self._next_ids.append(token)
            case _:
                pass

    def _feed(self, text: str) -> Sequence[TokenEventV2]:
        if self._job.n_alternatives:
            self._unparsed.add(self._next_logprobs, len(text))
            self._next_logprobs = []
        if self._job.wants_token_ids:
            self._token_ids.add(self._next_ids, len(text))
            self._next_ids = []
        parsed = self._parser.feed(text)
        self._align()
        return [event for block in parsed for event in self._until_stop(block)]

    def _align(self) -> None:
        """Assign to text what is known of its tokens."""
        runs = self._parser.runs()
        if self._job.wants_token_ids:
            self._token_ids.parsed(runs)
        if self._job.n_alternatives:
            self._align_logprobs(runs)

    def _align_logprobs(self, runs: Iterable[CharRun]) -> None:
        """Assign tokens' log probabilities to text; drop those of other parts."""
        for run in runs:
            if not run.is_text:
                self._unparsed.skip(run.n_chars)
                continue
            for share in self._unparsed.take(run.n_chars):
                self._to_send.add(*share)

    def _flush(self, end: Ended) -> Sequence[TokenEventV2]:
        was_cut = end.stop_reason == "length"
        cuts_forced_calls = (
            (was_cut or end.stop_token_id is not None)
            and self._job.tool_choice.is_forced
            and not end.structure_complete
        )
        parsed = self._parser.finish(was_cut=was_cut, is_forced=cuts_forced_calls)
        if cuts_forced_calls:
            # Text at the end of forced calls is part of an incomplete call.
            self._has_cut_call = was_cut
            parsed = [block for block in parsed if not isinstance(block, Text)]
        self._align()
        events = [event for block in parsed for event in self._until_stop(block)]
        return [*events, *self._end_of_text()]

    def _until_stop(self, parsed: ParsedBlock) -> Iterator[TokenEventV2]:
        """Yield the events of a parsed block: nothing after a stop string."""
        if self._stops.matched is not None:
            return
        match parsed:
            case MalformedToolCall():
                self._warnings.append(parsed)
            case Text(delta):
                yield from self._text(self._stops.feed(delta))
            case Thinking() | ToolUse():
                yield from self._end_of_text()
                if self._stops.matched is None:
                    if isinstance(parsed, ToolUse):
                        self._called.add(parsed.name)
                    yield self._with_token_ids(parsed)

    def _with_token_ids(self, block: Thinking | ToolUse) -> Thinking | ToolUse:
        if not self._job.wants_token_ids:
            return block
        if isinstance(block, ToolUse):
            return replace(block, token_ids=tuple(self._token_ids.of_call()))
        ids = self._token_ids.of_chars("thought", len(block.delta))
        return replace(block, token_ids=tuple(ids))

    def _end_of_text(self) -> Iterator[TokenEventV2]:
        """Yield text that was held back: a stop string cannot span reasoning or a call."""
        held = self._stops.finish()
        if held and self._stops.matched is None:
            self._stops = StopMatcher(self._job.stops)
        yield from self._text(held)

    def _text(self, text: str) -> Iterator[TokenEventV2]:
        if text:
            shares = self._to_send.take(len(text))
            logprobs = tuple(token for share in shares for token in share.tokens)
            if not self._job.wants_token_ids:
                yield Text(text, logprobs)
                return
            ids = self._token_ids.of_chars("text", len(text))
            yield Text(text, logprobs, token_ids=tuple(ids))

    def _finish(self, end: Ended) -> Sequence[TokenEventV2]:
        """End the answer, or fail if it lacks what the request demands, and nobody is told."""
        is_whole = self._stops.matched is None and not self._warnings
        unmet = unmet_demand(self._job, end, self._called) if is_whole else ""
        if unmet:
            self._failure = InvalidRequestError(unmet)
            return []
        if self._called and not is_cut(end):  # a server may leave its calls in its text
            end = replace(end, structure_complete=True)
        return super()._finish(end)

    def _done(self, end: Ended) -> TokenEventV2:
        return DoneV2(
            stop_reason=self._reason(end),
            usage=to_usage_v2(end.usage),
            stop_sequence=self._stops.matched,
            stop_token_id=end.stop_token_id,
            structure_complete=self._structure_complete(end),
            warnings=tuple(self.warnings),
            token_ids=tuple(self.unsent_token_ids),
            end_token_id=self._end_token_id(end),
        )

    def _end_token_id(self, end: Ended) -> int | None:
        tells = self._job.wants_token_ids and self._stops.matched is None
        return end.end_token_id if tells else None

    def _reason(self, end: Ended) -> StopReasonV2:
        if self._called and not self._has_cut_call:
            return "tool_use"
        if self._stops.matched is not None or end.stop_token_id is not None:
            return "stop_sequence"
        return STOP_REASONS_V2[end.stop_reason]
