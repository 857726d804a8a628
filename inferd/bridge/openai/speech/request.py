"""Forms with a recording, and the daemon's request that they become."""

from functools import partial
from typing import Final, Literal

from msgspec import field

from inferd.bridge.openai.speech.answer import StreamedTranscript, render
from inferd.bridge.openai.speech.tables import TRANSCRIPTIONS, TRANSLATIONS
from inferd.bridge.recordings.form import Form, read_form
from inferd.bridge.recordings.transcript import (
    RecordingFields,
    TranscriptAnswer,
    ask_transcript,
)
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import Asked, Question

AudioFormat = Literal["json", "text", "srt", "vtt", "verbose_json"]
_GRANULARITIES: Final = "timestamp_granularities[]"
_INCLUDE: Final = "include[]"


class TranslationForm(RecordingFields, frozen=True, kw_only=True):
    """The honoured fields of a request for a translation."""

    response_format: AudioFormat = "json"


class TranscriptionForm(TranslationForm, frozen=True, kw_only=True):
    """The honoured fields of a request for a transcription."""

    granularities: list[Literal["word", "segment"]] = field(
        default_factory=list, name=_GRANULARITIES
    )
    stream: bool = False
    include: list[Literal["logprobs"]] = field(default_factory=list, name=_INCLUDE)


def ask_transcription(form: Form, asked: Asked) -> Question:
    """Translate a request for a transcription.

    Raises:
        BridgeError: it has something that is not served, or that contradicts itself.
    """
    wanted = read_form(form, TRANSCRIPTIONS, TranscriptionForm)
    if wanted.granularities and wanted.response_format != "verbose_json":
        raise _needs(_GRANULARITIES, "verbose_json")
    if wanted.stream and wanted.response_format != "json":
        raise _needs("stream", "json")
    if wanted.include and wanted.response_format != "json":
        raise _needs(_INCLUDE, "json")
    has_logprobs = bool(wanted.include)
    rendered = partial(
        render,
        wanted.response_format,
        has_words="word" in wanted.granularities,
        has_segments="segment" in wanted.granularities or not wanted.granularities,
        has_logprobs=has_logprobs,
    )
    answer = TranscriptAnswer(wanted, rendered)
    if wanted.stream:
        answer = StreamedTranscript(wanted, rendered, has_logprobs=has_logprobs)
    return ask_transcript(
        form,
        asked,
        wanted,
        answer,
        response_format=wanted.response_format,
        has_words="word" in wanted.granularities,
        is_streamed=wanted.stream,
        has_logprobs=has_logprobs or wanted.response_format == "verbose_json",
    )


def ask_translation(form: Form, asked: Asked) -> Question:
    """Translate a request for a transcript in English.

    Raises:
        BridgeError: it has something that is not served.
    """
    wanted = read_form(form, TRANSLATIONS, TranslationForm)
    rendered = partial(render, wanted.response_format, is_translation=True)
    return ask_transcript(
        form,
        asked,
        wanted,
        TranscriptAnswer(wanted, rendered),
        response_format=wanted.response_format,
        translates=True,
        has_logprobs=wanted.response_format == "verbose_json",
    )


def _needs(name: str, response_format: str) -> BridgeError:
    return BridgeError(
        Reason.INVALID_REQUEST,
        f"{name}: needs the response_format {response_format}",
        param=name,
    )
