"""The state of one transcription job, for recordings and live audio alike."""

import os
import weakref
from collections.abc import Callable
from typing import Final

from inferd.backend.job import TranscribeJob
from inferd.ipc.worker import Segment, TranscriptEnded
from inferd.wire.responses import Usage
from inferd.worker.backend import PreparedJob
from inferd.worker.whisper.model.weights import ENGLISH, WhisperModel
from inferd.worker.whisper.transcribe.audio import (
    SAMPLE_RATE,
    SAMPLES_PER_MS,
    AudioFile,
    Samples,
    positions,
)
from inferd.worker.whisper.transcribe.inference import (
    InferenceCallbacks,
    InferenceOptions,
    Piece,
    WhisperState,
)
from inferd.worker.whisper.transcribe.scheduler import JobDroppedError, JobThread
from inferd.worker.whisper.transcribe.segments import SegmentBuffer

AUTO: Final = "auto"
MIN_SAMPLES: Final = SAMPLE_RATE // 10 + 40
"""Fewest samples that the library transcribes: ten frames of 10 ms, and 40 more. It reads
200 samples in any case, so it is not called with fewer than this."""


class PreparedSpeech(PreparedJob):
    """A checked transcription job with its audio file and tokenised prompt.

    Ownership:
        Holds the audio's file descriptor until it is closed or garbage-collected.
    """

    def __init__(
        self, job: TranscribeJob, audio: AudioFile, prompt: tuple[int, ...]
    ) -> None:
        self.job = job
        self.audio = audio
        self.prompt = prompt
        """Tokens of the prompt: words that the recording may contain."""
        self.is_whole = not job.audio.is_open
        """Whether all audio has arrived."""
        self._close = weakref.finalize(self, os.close, audio.fd)

    def close(self) -> None:
        """Close the audio file."""
        self._close()

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt plus encoder positions of the audio so far."""
        return len(self.prompt) + positions(self.audio.n_samples)


class TranscriptionSession:
    """One running job: its thread, its inference state and its segments.

    Args:
        model: the loaded model.
        speech: the job.
        thread: the job's thread.
        n_threads: returns the number of threads that the library may use now.
    """

    def __init__(
        self,
        model: WhisperModel,
        speech: PreparedSpeech,
        thread: JobThread,
        n_threads: Callable[[], int],
    ) -> None:
        self.speech = speech
        self.thread = thread
        self.segments = SegmentBuffer(
            thread.ticket,
            speech.job.max_tokens,
            wants_logprobs=speech.job.wants_logprobs,
        )
        self.n_samples_done = 0
        """Samples transcribed so far, counted from the first one."""
        self._model = model
        self._n_threads = n_threads
        self._state: WhisperState | None = None
        self.language_probability: float | None = None
        requested = speech.job.language
        is_auto = requested is None or requested == AUTO
        self._detects_language = is_auto and model.header.is_multilingual
        self.language = ENGLISH if is_auto or requested is None else requested
        """Code of the language; a default until it is detected."""

    def perform(self, transcribe: Callable[["TranscriptionSession"], None]) -> None:
        """Transcribe the audio, and emit the results and the end of the job."""
        if not self.segments.is_full:
            try:
                transcribe(self)
            finally:
                self.free_state()
        if self.segments.has_unsent:
            self.send()
        self.thread.emit(self._ended())

    def free_state(self) -> None:
        """Free the inference state; the next run makes a new one."""
        state, self._state = self._state, None
        if state is not None:
            state.close()

    def _ensure_state(self) -> WhisperState:
        if self._state is None:
            self._state = WhisperState(self._model)
        return self._state

    def detect_language(self, samples: Samples) -> None:
        """Detect the language, unless it is fixed."""
        if self._detects_language and len(samples) >= MIN_SAMPLES:
            found = self._ensure_state().detect_language(samples, self._n_threads())
            self.language, self.language_probability = found
            self.thread.yield_control()

    def fix_language(self) -> None:
        """Keep the detected language for the rest of the audio."""
        self._detects_language = False

    def send(self, partial: Segment | None = None) -> None:
        """Emit the segments added since the last call, and an unsettled one if given."""
        self.thread.emit(self.segments.take(partial))

    def run(
        self,
        samples: Samples,
        options: InferenceOptions,
        on_segment: Callable[[list[Piece]], None],
    ) -> None:
        """Transcribe samples; other jobs may run between two chunks.

        Args:
            samples: the audio.
            options: of the call; threads, language, task and temperature are set here.
            on_segment: called with each segment.

        Raises:
            JobDroppedError: the job was dropped.
            InferenceError: the library failed.
        """
        if len(samples) < MIN_SAMPLES:
            return
        job = self.speech.job
        options = options._replace(
            n_threads=self._n_threads(),
            language=self.language,
            translates=job.translates,
            temperature=job.temperature,
        )
        callbacks = InferenceCallbacks(on_segment, self._next_chunk, self._should_abort)
        self._ensure_state().run(samples, options, callbacks)
        if self.thread.is_dropped:
            raise JobDroppedError

    def audio_ms(self) -> int:
        """Return the milliseconds of audio transcribed so far."""
        return self.n_samples_done // SAMPLES_PER_MS

    def _next_chunk(self) -> bool:
        if self.segments.is_full:
            return False
        self.send()
        self.thread.yield_control()
        return True

    def _should_abort(self) -> bool:
        return self.thread.heartbeat() or self.segments.is_full

    def _ended(self) -> TranscriptEnded:
        usage = Usage(
            prompt_tokens=len(self.speech.prompt) + positions(self.n_samples_done),
            completion_tokens=self.segments.n_tokens,
        )
        return TranscriptEnded(
            ticket=self.thread.ticket,
            stop_reason="length" if self.segments.is_full else "end",
            usage=usage,
            language=self.language,
            language_probability=self.language_probability,
            audio_ms=self.audio_ms(),
            computing_ms=self.thread.computed_ms,
        )
