"""Transcripts of a daemon: each frame of its answer is a segment or a word."""

from collections.abc import Iterator, Sequence
from typing import Final

from inferd.backend.job import SAMPLE_BYTES, TranscribeJob
from inferd.config.kinds.inferd import InferdSettings
from inferd.ipc.worker import Segment, Transcribed, TranscriptEnded
from inferd.limits.engine import IPC_ITEMS_MAX
from inferd.resolve.transcription import AUTO_LANGUAGE
from inferd.surfaces import V2
from inferd.wire.blocks import AudioBlock, Block, BlocksRequest, Message, TextBlock
from inferd.wire.languages import LANGUAGE_NAMES
from inferd.wire.responses import Usage
from inferd.worker.remote.api import RemoteRequest
from inferd.worker.remote.failure import RemoteError, quote
from inferd.worker.remote.inferd.frames import (
    Frame,
    FrameTranscription,
    count_of,
    read_frame,
)
from inferd.worker.remote.inferd.request import (
    REQUEST_ID,
    asked_at,
    attachment_of,
    write_line,
)

_BATCH: Final = 1024
"""Segments in one message."""


def write_transcribe(
    settings: InferdSettings, job: TranscribeJob, samples: bytes
) -> RemoteRequest:
    """Write the line for a transcript.

    Raises:
        RefusedError: the recording is too long for a line.
    """
    text: list[Block] = [TextBlock(job.prompt)] if job.prompt else []
    request = BlocksRequest(
        id=REQUEST_ID,
        model=settings.model,
        via=[*job.via] or None,
        messages=[Message("user", [*text, AudioBlock(job.audio.id)])],
        attachments=[attachment_of(job.audio, samples)],
        language=job.language or AUTO_LANGUAGE,
        translate=job.translates or None,
        timestamps=job.timestamps,
        temperature=job.temperature,
        max_tokens=job.max_tokens,
        speech_logprobs=job.wants_logprobs or None,
    )
    return asked_at(settings, V2, write_line(request))


def read_transcribe(
    _settings: InferdSettings, ticket: int, job: TranscribeJob, body: bytes
) -> Sequence[Transcribed | TranscriptEnded]:
    """Read a transcript; its times are brought into the recording's own.

    Raises:
        RemoteError: it is none, or has no end.
    """
    frames = [read_frame(line) for line in body.split(b"\n")]
    done = frames.pop()
    if done.type != "done" or done.transcription is None:
        raise RemoteError("the remote's answer is no transcript")
    if done.stop_reason not in ("end_turn", "max_tokens"):
        reason = quote(done.stop_reason)
        raise RemoteError(f"the remote ended with the reason {reason!r}")
    segments = [*_segments(frames, _duration_ms(job))]
    if len(segments) > IPC_ITEMS_MAX:
        raise RemoteError(f"the remote's transcript has over {IPC_ITEMS_MAX} segments")
    n_tokens = count_of(done.usage.output_tokens) if done.usage else 0
    parts = [
        Transcribed(
            ticket=ticket,
            segments=segments[start : start + _BATCH],
            n_tokens=0 if start else n_tokens,
        )
        for start in range(0, len(segments), _BATCH)
    ]
    return [*parts, _ended(ticket, job, done, done.transcription)]


def _ended(
    ticket: int, job: TranscribeJob, done: Frame, facts: FrameTranscription
) -> TranscriptEnded:
    usage = done.usage
    audio_ms = min(count_of(facts.audio_ms), _duration_ms(job))
    return TranscriptEnded(
        ticket=ticket,
        stop_reason="length" if done.stop_reason == "max_tokens" else "end",
        usage=Usage(
            count_of(usage.input_tokens) if usage else 0,
            count_of(usage.output_tokens) if usage else 0,
        ),
        language=facts.language if facts.language in LANGUAGE_NAMES else "",
        language_probability=_probability(facts.language_probability),
        audio_ms=audio_ms,
        computing_ms=round(audio_ms * max(0.0, min(facts.real_time_factor, 1e6))),
    )


def _segments(frames: Sequence[Frame], audio_ms: int) -> Iterator[Segment]:
    for frame in frames:
        block = frame.block
        if block is None or block.type != "text":
            continue
        start_ms = min(count_of(block.start_ms), audio_ms)
        end_ms = min(count_of(block.end_ms), audio_ms)
        yield Segment(
            text=block.delta.encode("utf-8", "replace"),
            start_ms=start_ms,
            end_ms=max(start_ms, end_ms),
            no_speech=_probability(block.no_speech),
            logprobs=frame.logprobs,
        )


def _probability(number: float | None) -> float | None:
    return number if number is not None and 0 <= number <= 1 else None


def _duration_ms(job: TranscribeJob) -> int:
    n_samples = job.audio.n_bytes // SAMPLE_BYTES
    return n_samples * 1000 // max(1, job.audio.sample_rate)
