"""What the scripted backend hears: whatever is said, its lines, a second each."""

import math
import os
import time
from array import array
from typing import Final

from inferd.ipc import Failed, Segment, Silent, Transcribed, TranscriptEnded
from inferd.job import SAMPLE_BYTES, TranscribeJob
from inferd.wire.responses import Usage
from inferd.worker.backend import PreparedJob
from inferd.worker.limits import SOUND_MAX

READ_BYTES: Final = 1024 * 1024
"""Bytes of sound that are listened to in a step."""
TOKENS_PER_S: Final = 50
"""What a second of sound counts for, as with whisper."""
LANGUAGE: Final = "en"

Heard = Transcribed | TranscriptEnded | Failed


class Dictation(PreparedJob):
    """Listens to all of the sound, then says its lines; meanwhile, if asked, the next one.

    Ownership: the file is open until the end, or ``close``.

    Args:
        job: to be served.
        fd: of the file with the sound.
        tokens: what it says.
    """

    def __init__(self, job: TranscribeJob, fd: int, tokens: tuple[str, ...]) -> None:
        self._job = job
        self._fd = fd
        self._tokens = tokens
        self._n_bytes = job.audio.n_bytes
        self._is_whole = not job.audio.is_open
        self._n_read = 0
        self._computing_s = 0.0
        self.n_said = 0

    @property
    def prompt_tokens(self) -> int:
        """Tell that the words beside the sound cost nothing."""
        return 0

    @property
    def is_busy(self) -> bool:
        """Whether there is anything to be heard or said now."""
        return self._is_whole or self._n_read < self._n_bytes

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def append(self, n_bytes: int, *, is_last: bool) -> None:
        """Note that there is more."""
        self._n_bytes = max(self._n_bytes, n_bytes)
        self._is_whole |= is_last

    def silence(self, ticket: int) -> list[Silent]:
        """Say that there is nothing to do, if there is nothing."""
        if self.is_busy:
            return []
        return [Silent(ticket=ticket, until_bytes=self._n_bytes + 1)]

    def step(self, ticket: int) -> Heard:
        """Hear some more, or say a line, or end."""
        began_at = time.monotonic()
        try:
            if self._n_read < self._n_bytes:
                return self._listen(ticket)
            if self.n_said < self._n_lines:
                return self._say(ticket)
            return self._end(ticket)
        finally:
            self._computing_s += time.monotonic() - began_at

    @property
    def _n_lines(self) -> int:
        """Where nothing is to be heard, nothing is said."""
        most = self._job.max_tokens
        n_lines = len(self._tokens) if self._n_bytes else 0
        return n_lines if most is None else min(n_lines, most)

    @property
    def _audio_ms(self) -> int:
        return self._n_read // SAMPLE_BYTES * 1000 // self._job.audio.sample_rate

    def _listen(self, ticket: int) -> Transcribed | Failed:
        n_bytes = min(READ_BYTES, self._n_bytes - self._n_read)
        samples = array("f", os.pread(self._fd, n_bytes, self._n_read))
        if (number := _odd(samples)) is not None:
            where, sample = self._n_read // SAMPLE_BYTES + number, samples[number]
            reason = f'attachment "{self._job.audio.id}": sample {where} is {sample}'
            return Failed(ticket=ticket, reason=reason, by_request=True)
        self._n_read += n_bytes
        wants = self._job.wants_partials and self._n_lines
        return Transcribed(
            ticket=ticket,
            partial=self._segment(0) if wants else None,
            n_bytes_read=self._n_read,
        )

    def _say(self, ticket: int) -> Transcribed:
        segment = self._segment(self.n_said)
        self.n_said += 1
        return Transcribed(ticket=ticket, segments=[segment], n_tokens=1)

    def _segment(self, number: int) -> Segment:
        times = [min(each * 1000, self._audio_ms) for each in (number, number + 1)]
        text = self._tokens[number].encode()
        return Segment(text=text, start_ms=times[0], end_ms=times[1], no_speech=0.0)

    def _end(self, ticket: int) -> TranscriptEnded:
        is_cut = self._n_bytes and self.n_said < len(self._tokens)
        n_input = self._audio_ms * TOKENS_PER_S // 1000
        language = self._job.language
        return TranscriptEnded(
            ticket=ticket,
            stop_reason="length" if is_cut else "end",
            usage=Usage(prompt_tokens=n_input, completion_tokens=self.n_said),
            language=language or LANGUAGE,
            language_probability=1.0 if language is None else None,
            audio_ms=self._audio_ms,
            computing_ms=round(self._computing_s * 1000),
        )


def _odd(samples: "array[float]") -> int | None:
    """Find the first sample that nobody can have meant."""
    if -SOUND_MAX <= min(samples) <= max(samples) <= SOUND_MAX and math.isfinite(
        sum(samples)
    ):
        return None  # as a rule, and faster than to look at each
    odd = (n for n, each in enumerate(samples) if not abs(each) <= SOUND_MAX)
    return next(odd, None)
