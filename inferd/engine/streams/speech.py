"""Event stream of transcribe jobs: bytes become text with time spans."""

from collections.abc import Iterator

import trio
from msgspec.structs import replace

from inferd.backend.events import (
    AudioRead,
    DoneV2,
    Partial,
    Span,
    Text,
    TokenEventV2,
    Transcription,
)
from inferd.backend.interface import Prepared
from inferd.backend.job import TranscribeJob
from inferd.engine.channel.demultiplexer import JobMessage
from inferd.engine.channel.result_queue import ResultQueue
from inferd.engine.streams.base import STOP_REASONS_V2, AnswerStream, to_usage_v2
from inferd.errors import InternalError
from inferd.ipc.worker import Segment, Transcribed, TranscriptEnded
from inferd.output.utf8 import TextDecoder
from inferd.wire.responses import Logprob


class SpeechStream(AnswerStream[TokenEventV2]):
    """Transcribed text, in order, each piece with its time span.

    The joined pieces are the whole text, which does not begin with a space. A character
    that is split over two segments is part of the second.

    Args:
        results: of the job.
        prepared: the job.
    """

    def __init__(
        self, results: ResultQueue[JobMessage], prepared: Prepared[TranscribeJob]
    ) -> None:
        super().__init__(results)
        self._job = prepared.job
        self._texts = _Texts()
        self._n_read = 0

    def _events_of(self, result: JobMessage) -> Iterator[TokenEventV2]:
        match result:
            case Transcribed():
                yield from self._events(result)
            case TranscriptEnded():
                self._is_over = True
                yield from self._texts.rest()
                yield _done(result)
            case _:
                raise InternalError(
                    "unexpected message from the worker for a transcribe job"
                )

    def _events(self, transcribed: Transcribed) -> Iterator[TokenEventV2]:
        if transcribed.segments and self.first_token_at is None:
            self.first_token_at = trio.current_time()
        self._count(transcribed.n_tokens)
        for segment in transcribed.segments:
            yield from self._texts.of(segment)
        if transcribed.partial is not None and self._job.wants_partials:
            text = transcribed.partial.text.decode(
                errors="ignore"
            )  # may end within a character
            yield Partial(text.lstrip(" "), _span(transcribed.partial))
        if self._job.audio.is_open and transcribed.n_bytes_read > self._n_read:
            self._n_read = transcribed.n_bytes_read
            yield AudioRead(self._n_read)


class _Texts:
    """Converter of segments to text: an empty one extends the next one's span."""

    def __init__(self) -> None:
        self._decoder = TextDecoder()
        self._has_begun = False
        self._start_ms: int | None = None
        self._last: Span | None = None
        self._logprobs: list[Logprob] = []
        """Of tokens without text so far."""

    def of(self, segment: Segment) -> Iterator[Text]:
        self._last = _span(segment)
        self._logprobs += segment.logprobs
        yield from self._text(self._decoder.feed(segment.text), self._last)

    def rest(self) -> Iterator[Text]:
        """Yield the rest of an incomplete character."""
        if self._last is not None:
            yield from self._text(self._decoder.finish(), self._last)

    def _text(self, text: str, span: Span) -> Iterator[Text]:
        if self._start_ms is not None:
            span = replace(span, start_ms=self._start_ms)
        text = text if self._has_begun else text.lstrip(" ")
        self._start_ms = None if text else span.start_ms
        if text:
            self._has_begun = True
            logprobs, self._logprobs = tuple(self._logprobs), []
            yield Text(text, logprobs, span=span)


def _span(segment: Segment) -> Span:
    return Span(
        start_ms=segment.start_ms, end_ms=segment.end_ms, no_speech=segment.no_speech
    )


def _done(end: TranscriptEnded) -> DoneV2:
    return DoneV2(
        stop_reason=STOP_REASONS_V2[end.stop_reason],
        usage=to_usage_v2(end.usage),
        transcription=Transcription(
            language=end.language,
            language_probability=end.language_probability,
            audio_ms=end.audio_ms,
            computing_ms=end.computing_ms,
        ),
    )
