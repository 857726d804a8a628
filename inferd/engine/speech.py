"""A running transcription's answers as events: bytes become text that has its times."""

from collections.abc import Iterator

import trio
from msgspec.structs import replace

from inferd.backend import Prepared
from inferd.engine.answers import Answer
from inferd.engine.mailbox import Mailbox
from inferd.engine.stream import REASONS_V2, AnswerStream, usage_v2
from inferd.errors import InternalError
from inferd.events import (
    AudioRead,
    DoneV2,
    Partial,
    Span,
    Text,
    TokenEventV2,
    Transcription,
)
from inferd.ipc import Segment, Transcribed, TranscriptEnded
from inferd.job import TranscribeJob
from inferd.output.utf8 import TextDecoder


class SpeechStream(AnswerStream[TokenEventV2]):
    """What was said, in order, each piece of text with when that was.

    The pieces joined are the whole text, which begins with no space. A character that is
    split over two segments comes with the second.

    Args:
        box: of the job's answers.
        prepared: the job.
    """

    def __init__(self, box: Mailbox[Answer], prepared: Prepared[TranscribeJob]) -> None:
        super().__init__(box)
        self._job = prepared.job
        self._texts = _Texts()
        self._n_read = 0

    def _events_of(self, answer: Answer) -> Iterator[TokenEventV2]:
        match answer:
            case Transcribed():
                yield from self._heard(answer)
            case TranscriptEnded():
                self._is_over = True
                yield from self._texts.rest()
                yield _done(answer)
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
    return DoneV2(
        stop_reason=REASONS_V2[end.stop_reason],
        usage=usage_v2(end.usage),
        transcription=Transcription(
            language=end.language,
            language_probability=end.language_probability,
            audio_ms=end.audio_ms,
            computing_ms=end.computing_ms,
        ),
    )
