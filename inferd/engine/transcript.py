"""What a worker may say of a transcription: nothing of sound that it was not told of."""

import math
from dataclasses import dataclass
from typing import Final, Self

from inferd.ipc import Segment, Transcribed, TranscriptEnded
from inferd.job import SAMPLE_BYTES, TranscribeJob

OVERRUN_MS: Final = 60_000
"""Milliseconds by which times may pass the sound's end: its last window is filled up with
silence, to 30 s with whisper, and that may be counted twice. F-25."""
PARTIAL_BYTES: Final = 64 * 1024
"""Bytes of text that may change yet: some seconds of speech. F-25."""


@dataclass(slots=True)
class Transcript:
    """The sound of one job, as far as each side knows it."""

    sample_rate: int
    n_bytes: int
    """That the worker was told of."""
    n_bytes_read: int = 0
    """That it does not need any more."""

    @classmethod
    def of(cls, job: TranscribeJob) -> Self:
        """Begin with what a job comes with."""
        return cls(job.audio.sample_rate, job.audio.n_bytes)

    def appended(self, n_bytes: int) -> None:
        """Note how much there is by now, in all; what was told before stays told."""
        self.n_bytes = max(self.n_bytes, n_bytes)

    def fault_in(self, said: Transcribed | TranscriptEnded) -> str | None:
        """Say what is wrong with what was said, if anything."""
        match said:
            case Transcribed():
                return self._fault_in_words(said)
            case TranscriptEnded():
                return self._fault_in_end(said)

    def _fault_in_words(self, said: Transcribed) -> str | None:
        for segment in said.segments:
            if fault := self._fault_of(segment):
                return fault
        partial = said.partial
        if partial is not None:
            if len(partial.text) > PARTIAL_BYTES:
                return "more that may change than anybody says at once"
            if fault := self._fault_of(partial):
                return fault
        if said.n_bytes_read:  # else it says nothing about them
            if not self.n_bytes_read <= said.n_bytes_read <= self.n_bytes:
                return f"{said.n_bytes_read} bytes of {self.n_bytes} are read"
            self.n_bytes_read = said.n_bytes_read
        return None

    def _fault_in_end(self, end: TranscriptEnded) -> str | None:
        if end.audio_ms > self._longest_ms:
            return f"{end.audio_ms} ms were heard, of {self._longest_ms} at most"
        return _fault_of_share(end.language_probability)

    @property
    def _longest_ms(self) -> int:
        n_samples = self.n_bytes // SAMPLE_BYTES
        return n_samples * 1000 // max(1, self.sample_rate) + OVERRUN_MS

    def _fault_of(self, segment: Segment) -> str | None:
        if not segment.start_ms <= segment.end_ms <= self._longest_ms:
            return (
                f"something was said from {segment.start_ms} to {segment.end_ms} ms, "
                f"of {self._longest_ms} at most"
            )
        return _fault_of_share(segment.no_speech)


def _fault_of_share(share: float | None) -> str | None:
    if share is None or (math.isfinite(share) and 0 <= share <= 1):
        return None
    return f"a probability of {share}"
