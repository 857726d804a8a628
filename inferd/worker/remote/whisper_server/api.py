"""The record of whisper.cpp's server.

Source: whisper.cpp, ``examples/server/README.md`` and ``server.cpp``.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.job import TranscribeJob
from inferd.config.kinds.whisper_server import WhisperServerSettings
from inferd.ipc.worker import Transcribed, TranscriptEnded
from inferd.worker.remote.api import (
    SPEECH_SAMPLE_RATE,
    AnswerForm,
    ErrorReader,
    RemoteApi,
    RemoteRequest,
    Whole,
    bearer,
)
from inferd.worker.remote.errors import ReportedError, error_in, error_of
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.speech.form import refuse_speech_options, write_form
from inferd.worker.remote.speech.transcript import read_transcript


class _Failure(Struct):
    error: str = ""


def error_of_status(
    status: int, headers: Mapping[str, str], body: bytes, now: float
) -> RemoteError:
    """Make the error of an answer that is not 200, whose text is plain or JSON."""
    said = _decode(body) or body.decode("utf-8", "replace")
    return error_of(status, headers, now, ReportedError(said))


def error_in_answer(body: bytes) -> RemoteError:
    """Make the error of an answer that is 200: the server says so of sound that it cannot read."""
    return error_in(ReportedError(_decode(body)))


def write_transcribe(
    settings: WhisperServerSettings, job: TranscribeJob, recording: bytes
) -> RemoteRequest:
    """Write the request for a transcript; without a language the server takes English.

    Raises:
        RefusedError: the job has what the server cannot honour.
    """
    refuse_speech_options(settings, job)
    fields = {
        "response_format": "verbose_json",
        "language": job.language or "auto",
        "translate": "true" if job.translates else "false",
    }
    if job.prompt:
        fields["prompt"] = job.prompt
    if job.temperature is not None:
        fields["temperature"] = f"{job.temperature:g}"
    form = write_form(fields, recording)
    return RemoteRequest(
        "/inference", form.body, AnswerForm.DOCUMENT, form.content_type
    )


def read_transcribe(
    _settings: WhisperServerSettings, ticket: int, job: TranscribeJob, body: bytes
) -> Sequence[Transcribed | TranscriptEnded]:
    """Read a transcript.

    Raises:
        RemoteError: it is none, or reports an error.
    """
    if body.startswith(b'{"error"'):
        raise error_in_answer(body)
    return read_transcript(ticket, job, body)


def capabilities(settings: WhisperServerSettings) -> BackendCapabilities:
    """Say what a backend can do."""
    return BackendCapabilities(
        generate=False,
        v2=True,
        audio=True,
        transcribe=True,
        audio_sample_rate=SPEECH_SAMPLE_RATE,
        model=settings.model,
        remote=True,
        by_name_only=not settings.route_unnamed,
    )


def _decode(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Failure).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


WHISPER_SERVER_API: Final = RemoteApi(
    name="whisper.cpp's server",
    headers=bearer,
    errors=ErrorReader(error_of_status, error_in_answer),
    capabilities=capabilities,
    transcribe=Whole(write=write_transcribe, read=read_transcribe),
)
