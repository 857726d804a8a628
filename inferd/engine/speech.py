"""A running transcription's answers as events: bytes become text that has its times."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

import trio
from msgspec.structs import replace

from inferd.backend import Prepared, Reuse
from inferd.engine.answers import Answer
from inferd.engine.mailbox import Mailbox
from inferd.errors import InternalError, InvalidRequestError
from inferd.events import (
    AudioRead,
    DoneV2,
    MalformedToolCall,
    Partial,
    Span,
    Text,
    TokenEventV2,
    Transcription,
)
from inferd.ipc import Failed, Segment, Transcribed, TranscriptEnded
from inferd.job import TranscribeJob
from inferd.output.utf8 import TextDecoder
from inferd.wire.responses import Guesses, StopReasonV2, UsageV2

_REASONS: Final[dict[str, StopReasonV2]] = {"end": "end_turn", "length": "max_tokens"}


class SpeechStream:
    """What was said, in order, each piece of text with when that was.

    The pieces joined are the whole text, which begins with no space. A character that is
    split over two segments comes with the second.

    Args:
        box: of the job's answers.
        prepared: the job.
    """

    def __init__(self, box: Mailbox[Answer], prepared: Prepared[TranscribeJob]) -> None:
        self._box = box
        self._job = prepared.job
        self._texts = _Texts()
        self._n_read = 0
        self._is_over = False
        self.n_tokens = 0
        self.first_token_at: float | None = None
        self.warnings: Sequence[MalformedToolCall] = ()
        self.reuse = Reuse()
        self.guesses = Guesses()

    def __aiter__(self) -> AsyncIterator[Sequence[TokenEventV2]]:
        return self

    def until_over(self) -> AbstractContextManager[None]:
        """Cut short what is inside once the worker has said all."""
        return self._box.until_over()

    async def __anext__(self) -> Sequence[TokenEventV2]:
        if self._is_over:
            raise StopAsyncIteration
        events: list[TokenEventV2] = []
        while not events:
            for answer in await self._box.take():
                events += self._events_of(answer)
        return events

    def _events_of(self, answer: Answer) -> Iterator[TokenEventV2]:
        match answer:
            case Transcribed():
                yield from self._heard(answer)
            case TranscriptEnded():
                self._is_over = True
                yield from self._texts.rest()
                yield _done(answer)
            case Failed(reason=reason, by_request=by_request):
                raise (
                    InvalidRequestError(reason) if by_request else InternalError(reason)
                )
            case _:
                raise InternalError("the worker answered speech with something else")

    def _heard(self, heard: Transcribed) -> Iterator[TokenEventV2]:
        if heard.segments and self.first_token_at is None:
            self.first_token_at = trio.current_time()
        self.n_tokens += heard.n_tokens
        for segment in heard.segments:
            yield from self._texts.of(segment)
        if heard.partial is not None and self._job.wants_partials:
            text = heard.partial.text.decode(errors="ignore")  # half a character's end
            yield Partial(text.lstrip(" "), _span(heard.partial))
        if self._job.audio.is_open and heard.n_bytes_read > self._n_read:
            self._n_read = heard.n_bytes_read
            yield AudioRead(self._n_read)


class _Texts:
    """Segments as text: those that give none yet lend the next one their beginning."""

    def __init__(self) -> None:
        self._decoder = TextDecoder()
        self._has_begun = False
        self._start_ms: int | None = None
        self._last: Span | None = None

    def of(self, segment: Segment) -> Iterator[Text]:
        self._last = _span(segment)
        yield from self._said(self._decoder.feed(segment.text), self._last)

    def rest(self) -> Iterator[Text]:
        """Give what is left of a character that is not completed."""
        if self._last is not None:
            yield from self._said(self._decoder.finish(), self._last)

    def _said(self, text: str, span: Span) -> Iterator[Text]:
        if self._start_ms is not None:
            span = replace(span, start_ms=self._start_ms)
        text = text if self._has_begun else text.lstrip(" ")
        self._start_ms = None if text else span.start_ms
        if text:
            self._has_begun = True
            yield Text(text, span=span)


def _span(segment: Segment) -> Span:
    return Span(
        start_ms=segment.start_ms, end_ms=segment.end_ms, no_speech=segment.no_speech
    )


def _done(end: TranscriptEnded) -> DoneV2:
    usage = end.usage
    return DoneV2(
        stop_reason=_REASONS[end.stop_reason],
        usage=UsageV2(
            usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens
        ),
        transcription=Transcription(
            language=end.language,
            language_probability=end.language_probability,
            audio_ms=end.audio_ms,
            computing_ms=end.computing_ms,
        ),
    )
