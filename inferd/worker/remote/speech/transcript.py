"""A transcript as ``verbose_json``, which OpenAI's API and whisper.cpp's server have alike.

Source: OpenAI's OpenAPI document 2.3.0, ``CreateTranscriptionResponseVerboseJson``; whisper.cpp,
``examples/server``.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from inferd.backend.job import SAMPLE_BYTES, TranscribeJob
from inferd.ipc.worker import Segment, Transcribed, TranscriptEnded
from inferd.limits.engine import IPC_ITEMS_MAX
from inferd.wire.languages import LANGUAGE_NAMES, language_code
from inferd.wire.responses import Usage
from inferd.worker.remote.failure import RemoteError

_BATCH: Final = 1024
"""Segments in one message."""


class _Segment(Struct):
    text: str = ""
    start: float = 0.0
    end: float = 0.0
    tokens: list[int] = []
    no_speech_prob: float | None = None


class _Transcript(Struct):
    text: str
    segments: list[_Segment] | None = None
    language: str | None = None


_TRANSCRIPT: Final = msgspec.json.Decoder(_Transcript)


def read_transcript(
    ticket: int, job: TranscribeJob, body: bytes
) -> Sequence[Transcribed | TranscriptEnded]:
    """Read a transcript; its times are brought into the recording's own.

    Args:
        ticket: of the job.
        job: that is answered.
        body: of the answer.

    Raises:
        RemoteError: it is no transcript.
    """
    try:
        transcript = _TRANSCRIPT.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RemoteError("the remote's answer is no transcript") from None
    audio_ms = _duration_ms(job)
    segments = _segments(transcript, audio_ms)
    if len(segments) > IPC_ITEMS_MAX:
        raise RemoteError(f"the remote's transcript has over {IPC_ITEMS_MAX} segments")
    n_tokens = sum(len(each.tokens) for each in transcript.segments or ())
    parts = [
        Transcribed(
            ticket=ticket,
            segments=segments[start : start + _BATCH],
            n_tokens=0 if start else n_tokens,
        )
        for start in range(0, len(segments), _BATCH)
    ]
    ended = TranscriptEnded(
        ticket=ticket,
        stop_reason="end",
        usage=Usage(0, n_tokens, is_estimate=True),
        language=_language(transcript, job),
        audio_ms=audio_ms,
        computing_ms=0,
    )
    return [*parts, ended]


def _segments(transcript: _Transcript, audio_ms: int) -> list[Segment]:
    """Return the segments; a text without any is one, of the whole recording."""
    given = transcript.segments
    if not given and transcript.text:
        given = [_Segment(transcript.text, 0.0, audio_ms / 1000)]
    found: list[Segment] = []
    for each in given or ():
        start_ms = _ms(each.start, 0, audio_ms)
        found.append(
            Segment(
                text=each.text.encode("utf-8", "replace"),
                start_ms=start_ms,
                end_ms=_ms(each.end, start_ms, audio_ms),
                no_speech=_probability(each.no_speech_prob),
            )
        )
    return found


def _ms(seconds: float, least: int, most: int) -> int:
    """Bring a time into its bounds; not-a-number is none."""
    if not seconds < most / 1000:
        return most
    return max(least, round(seconds * 1000))


def _probability(number: float | None) -> float | None:
    return number if number is not None and 0 <= number <= 1 else None


def _language(transcript: _Transcript, job: TranscribeJob) -> str:
    """Return the code of the language; empty if the remote names none that is known."""
    code = language_code(transcript.language or job.language or "")
    return code if code in LANGUAGE_NAMES else ""


def _duration_ms(job: TranscribeJob) -> int:
    n_samples = job.audio.n_bytes // SAMPLE_BYTES
    return n_samples * 1000 // max(1, job.audio.sample_rate)
