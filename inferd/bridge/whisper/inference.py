"""Forms with a recording, and transcripts in the forms of whisper.cpp's server."""

from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from inferd.bridge.recordings.form import Form, read_form
from inferd.bridge.recordings.transcript import (
    FILE_FORMATS,
    FinishedTranscript,
    RecordingFields,
    TranscriptAnswer,
    ask_transcript,
    token_fields,
)
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import Asked, Question
from inferd.bridge.whisper.tables import INFERENCE, TRUE
from inferd.client.transcripts import FORMATS, TranscriptSegment, has_text
from inferd.limits.protocol import U32_MAX
from inferd.wire.languages import language_name

Flag = Literal["true", "1", "yes", "y", "false", "0", "no", "n"]
_WORD_LENGTH: Final = 1
Fields = dict[str, object]


class InferenceForm(RecordingFields, frozen=True, kw_only=True):
    """The honoured fields of a request."""

    response_format: Literal["json", "text", "srt", "vtt", "verbose_json"] = "json"
    translate: Flag = "false"
    split_on_word: Flag = "false"
    no_language_probabilities: Flag = "false"
    max_len: Annotated[int, Meta(ge=0, le=_WORD_LENGTH)] = 0
    offset_n: Annotated[int, Meta(ge=0, le=U32_MAX)] = 0

    @property
    def has_words(self) -> bool:
        """Whether a segment is a word.

        Raises:
            BridgeError: segments are to be characters.
        """
        if self.max_len and self.split_on_word not in TRUE:
            raise BridgeError(
                Reason.UNSUPPORTED, "max_len: needs split_on_word", param="max_len"
            )
        return self.max_len == _WORD_LENGTH


def ask_inference(form: Form, asked: Asked) -> Question:
    """Translate a request for a transcript.

    Raises:
        BridgeError: it has something that is not served, or that contradicts itself.
    """
    wanted = read_form(form, INFERENCE, InferenceForm)
    return ask_transcript(
        form,
        asked,
        wanted,
        TranscriptAnswer(wanted, partial(render, wanted)),
        response_format=wanted.response_format,
        has_words=wanted.has_words,
        translates=wanted.translate in TRUE,
        has_logprobs=wanted.response_format == "verbose_json",
    )


def render(wanted: InferenceForm, finished: FinishedTranscript) -> bytes:
    """Return the body of an answer."""
    transcript = finished.transcript
    text = FORMATS["txt"].whole("", transcript)
    match wanted.response_format:
        case "verbose_json":
            return msgspec.json.encode(_verbose(wanted, finished, text))
        case "json":
            return msgspec.json.encode({"text": text})
        case other:
            file_format = FORMATS[FILE_FORMATS[other]]
            return file_format.whole("", transcript, wanted.offset_n + 1).encode()


def _verbose(wanted: InferenceForm, finished: FinishedTranscript, text: str) -> Fields:
    is_translation = wanted.translate in TRUE
    fields: Fields = {
        "task": "translate" if is_translation else "transcribe",
        "language": language_name(finished.language),
        "duration": finished.duration_s,
        "text": text,
    }
    probability = finished.language_probability
    if probability is not None and wanted.no_language_probabilities not in TRUE:
        fields |= {
            "detected_language": language_name(finished.language),
            "detected_language_probability": probability,
            "language_probabilities": {finished.language: probability},
        }
    segments = filter(has_text, finished.transcript.segments)
    return {
        **fields,
        "segments": [
            _segment(number, each, finished.temperature)
            for number, each in enumerate(segments)
        ],
    }


def _segment(number: int, segment: TranscriptSegment, temperature: float) -> Fields:
    return {
        "id": number,
        "text": segment.text,
        "start": segment.start_ms / 1000,
        "end": segment.end_ms / 1000,
        "temperature": temperature,
        **token_fields(segment),
    }
