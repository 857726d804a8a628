"""Transcripts in OpenAI's forms."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from inferd.bridge.recordings.transcript import (
    FILE_FORMATS,
    FinishedTranscript,
    RecordingFields,
    TranscriptAnswer,
    token_fields,
)
from inferd.bridge.translation.sse import event
from inferd.client.transcripts import FORMATS, TranscriptSegment
from inferd.wire.languages import language_name
from inferd.wire.responses import UsageV2

SENTENCE_ENDS: Final = (
    ".",
    "?",
    "!",
    "…",
    "\N{IDEOGRAPHIC FULL STOP}",
    "\N{FULLWIDTH QUESTION MARK}",
)
"""Characters that end a sentence."""
SENTENCE_MS: Final = 30_000
"""Milliseconds after which a sentence ends in any case: no segment of a model is longer."""
Fields = dict[str, object]


def render(  # noqa: PLR0913  # what an answer may have
    response_format: str,
    finished: FinishedTranscript,
    *,
    has_words: bool = False,
    has_segments: bool = True,
    is_translation: bool = False,
    has_logprobs: bool = False,
) -> bytes:
    """Return the body of an answer that is not streamed.

    Args:
        response_format: one of ``MEDIA_TYPES``.
        finished: the transcript.
        has_words: whether its segments are words; with ``verbose_json`` they are told.
        has_segments: whether ``verbose_json`` has segments.
        is_translation: whether it was translated to English.
        has_logprobs: whether ``json`` has those of all tokens.
    """
    transcript = finished.transcript
    if response_format == "text":
        return f"{transcript.text}\n".encode()
    if (file_format := FILE_FORMATS.get(response_format)) is not None:
        return FORMATS[file_format].whole("", transcript).encode()
    fields: Fields = {"text": transcript.text, "usage": _duration(finished)}
    if has_logprobs:
        fields["logprobs"] = [*_logprobs(transcript.segments)]
    if response_format == "verbose_json":
        fields = {
            "task": "translate" if is_translation else "transcribe",
            "language": language_name("en" if is_translation else finished.language),
            "duration": finished.duration_s,
            **fields,
        }
        segments = transcript.segments
        if has_words:
            fields["words"] = [_word(each) for each in segments]
        if has_segments:
            whole = sentences_of(segments) if has_words else segments
            fields["segments"] = [
                _segment(number, each, finished.temperature)
                for number, each in enumerate(whole)
            ]
    return msgspec.json.encode(fields)


def _logprobs(segments: Sequence[TranscriptSegment]) -> Iterator[Fields]:
    for segment in segments:
        for token in segment.logprobs or ():
            yield {
                "token": token.token,
                "logprob": token.logprob,
                "bytes": token.bytes,
            }


class StreamedTranscript(TranscriptAnswer):
    """The events of a transcript.

    Args:
        wanted: the request.
        render: writes the body; unused.
        has_logprobs: whether events have those of their tokens.
    """

    def __init__(
        self,
        wanted: RecordingFields,
        render: Callable[[FinishedTranscript], bytes],
        *,
        has_logprobs: bool = False,
    ) -> None:
        super().__init__(wanted, render)
        self._has_begun = False
        self._has_logprobs = has_logprobs

    def _events(self, segment: TranscriptSegment) -> Iterator[bytes]:
        """Yield the text of a segment; together they are the text of the transcript."""
        text = segment.text if self._has_begun else segment.text.lstrip()
        self._has_begun = self._has_begun or bool(text)
        if text:
            told = self._told([segment])
            yield _event({"type": "transcript.text.delta", "delta": text, **told})

    def _told(self, segments: Sequence[TranscriptSegment]) -> Fields:
        return {"logprobs": [*_logprobs(segments)]} if self._has_logprobs else {}

    def end(self) -> Iterator[bytes]:
        """Yield the event that ends a stream."""
        finished = self._finished()
        yield _event(
            {
                "type": "transcript.text.done",
                "text": finished.transcript.text,
                **self._told(finished.transcript.segments),
                "usage": _tokens(finished.usage),
            }
        )


def sentences_of(words: Sequence[TranscriptSegment]) -> list[TranscriptSegment]:
    """Join words to sentences.

    A word that ends one has one of ``SENTENCE_ENDS``, or ends ``SENTENCE_MS`` behind its
    beginning.
    """
    found: list[list[TranscriptSegment]] = [[]]
    for word in words:
        found[-1].append(word)
        is_long = word.end_ms - found[-1][0].start_ms >= SENTENCE_MS
        if is_long or word.text.rstrip().endswith(SENTENCE_ENDS):
            found.append([])
    return [_joined(each) for each in found if each]


def _joined(words: Sequence[TranscriptSegment]) -> TranscriptSegment:
    return TranscriptSegment(
        start_ms=words[0].start_ms,
        end_ms=words[-1].end_ms,
        text="".join(word.text for word in words),
        no_speech=words[0].no_speech,
        logprobs=[token for word in words for token in word.logprobs or ()],
    )


def _word(word: TranscriptSegment) -> Fields:
    return {
        "word": word.text.strip(),
        "start": word.start_ms / 1000,
        "end": word.end_ms / 1000,
    }


def _segment(number: int, segment: TranscriptSegment, temperature: float) -> Fields:
    """Return a segment; what the daemon does not tell is left out."""
    data = segment.text.encode()
    return {
        "id": number,
        "seek": segment.start_ms // 10,
        "start": segment.start_ms / 1000,
        "end": segment.end_ms / 1000,
        "text": segment.text,
        "temperature": temperature,
        "compression_ratio": len(data) / len(zlib.compress(data)),
        **token_fields(segment),
    }


def _duration(finished: FinishedTranscript) -> Fields:
    return {"type": "duration", "seconds": finished.duration_s}


def _tokens(usage: UsageV2) -> Fields:
    return {
        "type": "tokens",
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _event(fields: Fields) -> bytes:
    return event(msgspec.json.encode(fields))
