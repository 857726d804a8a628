"""Requests to transcribe a recording, and the transcripts that come of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct

from inferd.bridge.recordings.form import FILE, Form
from inferd.bridge.translation.generated import GeneratedAnswer
from inferd.bridge.translation.media import EncodedMedium
from inferd.bridge.translation.question import Asked, Question
from inferd.client.transcripts import Transcript, TranscriptSegment, segment_of
from inferd.limits.bridge import SOUND_TOKENS_PER_S
from inferd.wire.blocks import AudioBlock, Block, BlocksRequest, Message, TextBlock
from inferd.wire.languages import language_code
from inferd.wire.responses import BlockFrame, UsageV2

Temperature = Annotated[float, Meta(ge=0, le=2)]
MEDIA_TYPES: Final[Mapping[str, str]] = {
    "json": "application/json",
    "verbose_json": "application/json",
    "text": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
"""By ``response_format``."""
TEXT_MEDIA_TYPES: Final = tuple(
    kind for kind in MEDIA_TYPES.values() if kind != MEDIA_TYPES["json"]
)
FILE_FORMATS: Final[Mapping[str, str]] = {"text": "txt", "srt": "srt", "vtt": "vtt"}
"""The formats of ``client.transcripts`` by ``response_format``."""
_SOUND: Final = "sound"
_NAMES: Final = {
    "messages": "prompt",
    "attachments": FILE,
    "translate": "model",
    "audio attachments": "model",
    "answers to audio": "model",
}


class RecordingFields(Struct, frozen=True, kw_only=True):
    """What requests to transcribe a recording have in common."""

    model: str | None = None
    language: str | None = None
    prompt: str | None = None
    temperature: Temperature | None = None


@dataclass(frozen=True, kw_only=True)
class FinishedTranscript:
    """A transcript, and how it came about."""

    transcript: Transcript
    usage: UsageV2
    temperature: float

    @property
    def language(self) -> str:
        """Code of the language; empty if the daemon does not tell."""
        facts = self.transcript.facts
        return facts.language if facts else ""

    @property
    def language_probability(self) -> float | None:
        """Of a language that was detected."""
        facts = self.transcript.facts
        probability = facts.language_probability if facts else UNSET
        return None if probability is UNSET else probability

    @property
    def duration_s(self) -> float:
        """Seconds of sound."""
        facts = self.transcript.facts
        return (facts.audio_ms if facts else _end_ms(self.transcript.segments)) / 1000


class TranscriptAnswer(GeneratedAnswer):
    """The transcript of a recording, which is not streamed.

    Tokens of one that was cut are those of its sound up to the last segment, and a token
    for each segment.

    Args:
        wanted: the request.
        render: writes the body.
    """

    def __init__(
        self, wanted: RecordingFields, render: Callable[[FinishedTranscript], bytes]
    ) -> None:
        super().__init__()
        self._temperature = wanted.temperature or 0.0
        self._render = render
        self._segments: list[TranscriptSegment] = []

    def _take(self, frame: BlockFrame) -> Iterator[bytes]:
        segment = segment_of(frame)
        if segment is not None:
            self._n_processed = segment.end_ms * SOUND_TOKENS_PER_S // 1000
            self._segments.append(segment)
            yield from self._events(segment)

    def _events(self, _: TranscriptSegment) -> Iterator[bytes]:
        """Yield the events of a segment."""
        yield from ()

    def end(self) -> Iterator[bytes]:
        """Yield the events that end a stream."""
        yield from ()

    def whole(self) -> bytes:
        """Return the body."""
        return self._render(self._finished())

    def _finished(self) -> FinishedTranscript:
        assert self._done is not None  # noqa: S101  # the client raises without an end
        facts = self._done.transcription or None
        return FinishedTranscript(
            transcript=Transcript(segments=self._segments, facts=facts),
            usage=self._done.usage,
            temperature=self._temperature,
        )


def ask_transcript(  # noqa: PLR0913  # what a request consists of
    form: Form,
    asked: Asked,
    wanted: RecordingFields,
    answer: TranscriptAnswer,
    *,
    response_format: str,
    has_words: bool = False,
    translates: bool = False,
    is_streamed: bool = False,
    has_logprobs: bool = False,
) -> Question:
    """Make the daemon's request of a recording.

    Args:
        form: with the recording.
        asked: beside the form.
        wanted: its fields.
        answer: takes the frames.
        response_format: of the answer that is not streamed.
        has_words: whether words have times, and not segments.
        translates: to English.
        is_streamed: whether the answer is.
        has_logprobs: whether the answer tells of tokens.
    """
    content: list[Block] = [AudioBlock(_SOUND)]
    if wanted.prompt:
        content.insert(0, TextBlock(wanted.prompt))
    request = BlocksRequest(
        id=asked.request_id,
        model=wanted.model,
        messages=[Message("user", content)],
        language=wanted.language and language_code(wanted.language),
        translate=translates or None,
        timestamps="word" if has_words else "segment",
        speech_logprobs=has_logprobs or None,
        temperature=wanted.temperature,
        stream=is_streamed,
    )
    return Question(
        request,
        answer,
        is_streamed,
        field_names=_NAMES,
        media=[EncodedMedium("sound", form.file, FILE, _SOUND)],
        content_type=MEDIA_TYPES[response_format],
    )


def token_fields(segment: TranscriptSegment) -> dict[str, object]:
    """Return what APIs tell of a segment's tokens, as far as the daemon does.

    The mean is that of the segment's own tokens; whisper's command has one for a part of 30 s.
    """
    fields: dict[str, object] = {}
    if segment.logprobs is not UNSET and segment.logprobs:
        each = [token.logprob for token in segment.logprobs]
        fields["tokens"] = [token.id for token in segment.logprobs]
        fields["avg_logprob"] = sum(each) / len(each)
    if segment.no_speech is not UNSET:
        fields["no_speech_prob"] = segment.no_speech
    return fields


def _end_ms(segments: Sequence[TranscriptSegment]) -> int:
    return segments[-1].end_ms if segments else 0
