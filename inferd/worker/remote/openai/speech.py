"""Transcriptions of OpenAI's API: ``/audio/transcriptions`` and ``/audio/translations``."""

from collections.abc import Sequence

from inferd.backend.job import TranscribeJob
from inferd.config.kinds.openai import OpenAiSettings
from inferd.ipc.worker import Transcribed, TranscriptEnded
from inferd.worker.remote.api import AnswerForm, RemoteRequest
from inferd.worker.remote.speech.form import refuse_speech_options, write_form
from inferd.worker.remote.speech.transcript import read_transcript


def write_transcribe(
    settings: OpenAiSettings, job: TranscribeJob, recording: bytes
) -> RemoteRequest:
    """Write the request for a transcript, as a form with a file.

    Raises:
        RefusedError: the job has what the server cannot honour.
    """
    refuse_speech_options(settings, job)
    fields = {
        "model": settings.model,
        "response_format": "verbose_json",
        "prompt": job.prompt,
        # translations have no language: the text is English
        "language": "" if job.translates else job.language or "",
        "temperature": "" if job.temperature is None else f"{job.temperature:g}",
    }
    given = {name: value for name, value in fields.items() if value}
    form = write_form(given, recording)
    path = "/audio/translations" if job.translates else "/audio/transcriptions"
    return RemoteRequest(path, form.body, AnswerForm.DOCUMENT, form.content_type)


def read_transcribe(
    _settings: OpenAiSettings, ticket: int, job: TranscribeJob, body: bytes
) -> Sequence[Transcribed | TranscriptEnded]:
    """Read a transcript; see ``read_transcript``."""
    return read_transcript(ticket, job, body)
