"""Transcription by the mock backend: the script, a second for each token."""

import math
import os
import time
from array import array
from typing import Final

from inferd.backend.job import SAMPLE_BYTES, TranscribeJob
from inferd.ipc.worker import AudioNeeded, Failed, Segment, Transcribed, TranscriptEnded
from inferd.limits.worker import SAMPLE_MAX
from inferd.wire.responses import Logprob, Usage
from inferd.worker.backend import PreparedJob

MOCK_READ_BYTES: Final = 1024 * 1024
"""Bytes of audio that are read in a step."""
TOKENS_PER_S: Final = 50
"""Tokens that a second of audio counts for, as with whisper."""
LANGUAGE: Final = "en"
LOGPROB: Final = -0.25
"""Log probability of each token."""

SpeechOutcome = Transcribed | TranscriptEnded | Failed


class MockTranscription(PreparedJob):
    """Reads all of the audio, then sends the script; a first partial text while it reads.

    Ownership: the file is open until the end, or ``close``.

    Args:
        job: to serve.
        fd: of the file with the audio.
        tokens: the script.
    """

    def __init__(self, job: TranscribeJob, fd: int, tokens: tuple[str, ...]) -> None:
        self._job = job
        self._fd = fd
        self._tokens = tokens
        self._n_bytes = job.audio.n_bytes
        self._is_complete = not job.audio.is_open
        self._n_read = 0
        self._computing_s = 0.0
        self.n_written = 0

    @property
    def prompt_tokens(self) -> int:
        """No tokens: the prompt costs nothing."""
        return 0

    @property
    def is_busy(self) -> bool:
        """Whether there is audio to read or script to send."""
        return self._is_complete or self._n_read < self._n_bytes

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def append(self, n_bytes: int, *, is_last: bool) -> None:
        """Note that there is more audio."""
        self._n_bytes = max(self._n_bytes, n_bytes)
        self._is_complete |= is_last

    def audio_needed(self, ticket: int) -> list[AudioNeeded]:
        """Report that more audio is needed, if that is so."""
        if self.is_busy:
            return []
        return [AudioNeeded(ticket=ticket, until_bytes=self._n_bytes + 1)]

    def step(self, ticket: int) -> SpeechOutcome:
        """Read more audio, or send a segment, or end."""
        began_at = time.monotonic()
        try:
            if self._n_read < self._n_bytes:
                return self._read(ticket)
            if self.n_written < self._n_segments:
                return self._write(ticket)
            return self._end(ticket)
        finally:
            self._computing_s += time.monotonic() - began_at

    @property
    def _n_segments(self) -> int:
        """Segments to send: none if there is no audio."""
        limit = self._job.max_tokens
        n_segments = len(self._tokens) if self._n_bytes else 0
        return n_segments if limit is None else min(n_segments, limit)

    @property
    def _audio_ms(self) -> int:
        return self._n_read // SAMPLE_BYTES * 1000 // self._job.audio.sample_rate

    def _read(self, ticket: int) -> Transcribed | Failed:
        n_bytes = min(MOCK_READ_BYTES, self._n_bytes - self._n_read)
        samples = array("f", os.pread(self._fd, n_bytes, self._n_read))
        if (number := _out_of_range(samples)) is not None:
            where, sample = self._n_read // SAMPLE_BYTES + number, samples[number]
            reason = f'attachment "{self._job.audio.id}": sample {where} is {sample}'
            return Failed(ticket=ticket, reason=reason, by_request=True)
        self._n_read += n_bytes
        wants = self._job.wants_partials and self._n_segments
        return Transcribed(
            ticket=ticket,
            partial=self._segment(0) if wants else None,
            n_bytes_read=self._n_read,
        )

    def _write(self, ticket: int) -> Transcribed:
        segment = self._segment(self.n_written)
        self.n_written += 1
        return Transcribed(ticket=ticket, segments=[segment], n_tokens=1)

    def _segment(self, number: int) -> Segment:
        times = [min(second * 1000, self._audio_ms) for second in (number, number + 1)]
        text = self._tokens[number].encode()
        told = Logprob(
            token=self._tokens[number],
            id=number,
            bytes=[*text],
            logprob=LOGPROB,
            top_logprobs=[],
        )
        return Segment(
            text=text,
            start_ms=times[0],
            end_ms=times[1],
            no_speech=0.0,
            logprobs=[told] if self._job.wants_logprobs else [],
        )

    def _end(self, ticket: int) -> TranscriptEnded:
        is_cut = self._n_bytes and self.n_written < len(self._tokens)
        n_input = self._audio_ms * TOKENS_PER_S // 1000
        language = self._job.language
        return TranscriptEnded(
            ticket=ticket,
            stop_reason="length" if is_cut else "end",
            usage=Usage(prompt_tokens=n_input, completion_tokens=self.n_written),
            language=language or LANGUAGE,
            language_probability=1.0 if language is None else None,
            audio_ms=self._audio_ms,
            computing_ms=round(self._computing_s * 1000),
        )


def _out_of_range(samples: "array[float]") -> int | None:
    """Find the first sample that is out of range."""
    if -SAMPLE_MAX <= min(samples) <= max(samples) <= SAMPLE_MAX and math.isfinite(
        sum(samples)
    ):
        return None  # the usual case, and faster than a test of each
    positions = (n for n, sample in enumerate(samples) if not abs(sample) <= SAMPLE_MAX)
    return next(positions, None)
