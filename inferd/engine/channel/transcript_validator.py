"""Validator of transcripts: no times, bytes or counts beyond the audio that was sent."""

import math
from dataclasses import dataclass
from typing import Final, Self

from inferd.backend.job import SAMPLE_BYTES, TranscribeJob
from inferd.ipc.worker import Segment, Transcribed, TranscriptEnded

MAX_OVERRUN_MS: Final = 60_000
"""Milliseconds by which times may exceed the audio's end: the last window is padded with
silence, to 30 s with whisper, and that may be counted twice. F-25."""
MAX_PARTIAL_BYTES: Final = 64 * 1024
"""Bytes of provisional text: some seconds of speech. F-25."""


@dataclass(slots=True)
class TranscriptValidator:
    """The audio of one job, as the daemon sent it and as the worker has read it."""

    sample_rate: int
    n_bytes: int
    """Bytes that the worker knows of."""
    n_bytes_read: int = 0
    """Bytes that the worker does not need any more."""

    @classmethod
    def of(cls, job: TranscribeJob) -> Self:
        """Start with the audio that a job comes with."""
        return cls(job.audio.sample_rate, job.audio.n_bytes)

    def appended(self, n_bytes: int) -> None:
        """Note the bytes that there are by now, in all; never fewer than before."""
        self.n_bytes = max(self.n_bytes, n_bytes)

    def find_fault(self, message: Transcribed | TranscriptEnded) -> str | None:
        """Describe what is wrong with a message; ``None`` if nothing is."""
        match message:
            case Transcribed():
                return self._fault_in_segments(message)
            case TranscriptEnded():
                return self._fault_in_end(message)

    def _fault_in_segments(self, message: Transcribed) -> str | None:
        for segment in message.segments:
            if fault := self._fault_of(segment):
                return fault
        partial = message.partial
        if partial is not None:
            if len(partial.text) > MAX_PARTIAL_BYTES:
                return f"a provisional text of {len(partial.text)} bytes"
            if fault := self._fault_of(partial):
                return fault
        if message.n_bytes_read:  # 0 if the message does not report them
            if not self.n_bytes_read <= message.n_bytes_read <= self.n_bytes:
                return f"{message.n_bytes_read} bytes of {self.n_bytes} are read"
            self.n_bytes_read = message.n_bytes_read
        return None

    def _fault_in_end(self, end: TranscriptEnded) -> str | None:
        if end.audio_ms > self._max_ms:
            return f"{end.audio_ms} ms of audio, of {self._max_ms} at most"
        return _fault_of_probability(end.language_probability)

    @property
    def _max_ms(self) -> int:
        n_samples = self.n_bytes // SAMPLE_BYTES
        return n_samples * 1000 // max(1, self.sample_rate) + MAX_OVERRUN_MS

    def _fault_of(self, segment: Segment) -> str | None:
        if not segment.start_ms <= segment.end_ms <= self._max_ms:
            return (
                f"a segment from {segment.start_ms} to {segment.end_ms} ms, "
                f"of {self._max_ms} at most"
            )
        for each in segment.logprobs:
            if not (math.isfinite(each.logprob) and each.logprob <= 0):
                return f"a log probability of {each.logprob}"
        return _fault_of_probability(segment.no_speech)


def _fault_of_probability(probability: float | None) -> str | None:
    if probability is None or (math.isfinite(probability) and 0 <= probability <= 1):
        return None
    return f"a probability of {probability}"
