"""Transcription of live audio: samples are appended while the job runs."""

from typing import Final

from inferd.backend.job import SAMPLE_BYTES
from inferd.ipc.worker import AudioNeeded, Segment
from inferd.limits.worker import LIVE_NEW_S
from inferd.worker.whisper.transcribe.audio import SAMPLE_RATE, SAMPLES_PER_MS, Samples
from inferd.worker.whisper.transcribe.inference import InferenceOptions, Piece
from inferd.worker.whisper.transcribe.local_agreement import (
    MAX_OPEN_MS,
    AgreementResult,
    LocalAgreement,
)
from inferd.worker.whisper.transcribe.offline import (
    transcribe_recording,
    transcribe_window,
)
from inferd.worker.whisper.transcribe.session import TranscriptionSession
from inferd.worker.whisper.transcribe.windows import (
    CHUNK_SAMPLES,
    next_start,
    partial_window_at,
)

MAX_PROMPT_TOKENS: Final = 223
"""Tokens of the prompt that a model uses: half of its text context, less one."""
_NEW: Final = round(LIVE_NEW_S * SAMPLE_RATE)
"""New samples for which the open audio is transcribed again."""
_FAR: Final = 2 * CHUNK_SAMPLES
"""Samples ahead from which on audio is transcribed like a recording."""


def transcribe(session: TranscriptionSession) -> None:
    """Transcribe the audio of a job, complete or live.

    Raises:
        JobDroppedError: the job was dropped.
        InferenceError: the library failed.
        RefusedError: a sample is not finite or far too large.
    """
    if session.speech.is_whole:
        transcribe_recording(session, prompt=session.speech.prompt)
    else:
        _LiveTranscription(session).run()


class _LiveTranscription:
    def __init__(self, session: TranscriptionSession) -> None:
        self._session = session
        self._speech = session.speech
        self._agreement = LocalAgreement()
        self._prompt = self._speech.prompt[-MAX_PROMPT_TOKENS:]

    def run(self) -> None:
        while not self._session.segments.is_full:
            if not self._has_enough_audio():
                self._wait()
            if self._is_far_behind():
                if self._catch_up():
                    return
            elif self._transcribe_open_audio():
                return
            self._wait()

    def _wait(self) -> None:
        """Let other jobs run, and wait until there is enough new audio."""
        if not self._has_enough_audio():
            until_bytes = (self._session.n_samples_done + _NEW) * SAMPLE_BYTES
            ticket = self._session.thread.ticket
            self._session.thread.emit(
                AudioNeeded(ticket=ticket, until_bytes=until_bytes)
            )
        self._session.thread.yield_control(
            until=self._has_enough_audio, free=self._session.free_state
        )

    def _has_enough_audio(self) -> bool:
        """Return whether the audio has ended or grown enough to be transcribed again."""
        n_new = self._speech.audio.n_samples - self._session.n_samples_done
        return self._speech.is_whole or n_new >= _NEW

    def _is_far_behind(self) -> bool:
        """Return whether to transcribe the audio like a recording, every part once.

        That is so if all words are settled, and the audio has ended or much of it waits.
        """
        n_ahead = (
            self._speech.audio.n_samples - self._agreement.start_ms * SAMPLES_PER_MS
        )
        is_much = n_ahead >= _FAR or self._speech.is_whole
        return self._agreement.is_all_settled and is_much

    def _catch_up(self) -> bool:
        """Transcribe all audio but the last chunk, or all if it has ended.

        Returns:
            Whether the job is finished.
        """
        audio, first = self._speech.audio, self._agreement.start_ms * SAMPLES_PER_MS
        if self._speech.is_whole:
            transcribe_recording(self._session, first=first, prompt=self._prompt)
            return True
        window = partial_window_at(first, audio.n_samples)
        tokens = transcribe_window(
            self._session, window, InferenceOptions(prompt=self._prompt)
        )
        self._prompt = (*self._prompt, *tokens)[-MAX_PROMPT_TOKENS:]
        end = next_start(window, self._session.segments.end_ms)
        self._session.n_samples_done = end
        self._agreement.restart_at(end // SAMPLES_PER_MS)
        self._session.send()
        return False

    def _transcribe_open_audio(self) -> bool:
        """Transcribe the audio that is not settled; return whether that was the end."""
        is_whole, n_samples = self._speech.is_whole, self._speech.audio.n_samples
        first_ms = self._agreement.start_ms
        end = min(n_samples, (first_ms + MAX_OPEN_MS) * SAMPLES_PER_MS)
        samples = self._speech.audio.read(
            first_ms * SAMPLES_PER_MS, end - first_ms * SAMPLES_PER_MS
        )
        self._session.n_samples_done = end
        self._session.detect_language(samples)
        words = self._words(samples, first_ms)
        is_last = is_whole and end == n_samples
        self._apply(
            self._agreement.update(words, end // SAMPLES_PER_MS, is_last=is_last)
        )
        return is_last

    def _words(self, samples: Samples, first_ms: int) -> list[Piece]:
        found: list[Piece] = []
        options = InferenceOptions(by_word=True, prompt=self._prompt)
        self._session.run(samples, options, found.extend)
        return [
            word._replace(
                start_ms=word.start_ms + first_ms, end_ms=word.end_ms + first_ms
            )
            for word in found
            if word.text
        ]

    def _apply(self, agreed: AgreementResult) -> None:
        segments, audio_ms = self._session.segments, self._session.audio_ms()
        by_word = self._speech.job.timestamps == "word"
        settled = agreed.settled
        for piece in settled if by_word else _joined(settled):
            segments.add(piece, first_ms=0, audio_ms=audio_ms)
        if settled:
            self._session.fix_language()
        self._prompt += tuple(
            token.id for word in agreed.dropped for token in word.tokens
        )
        self._prompt = self._prompt[-MAX_PROMPT_TOKENS:]
        segments.n_bytes_read = agreed.start_ms * SAMPLES_PER_MS * SAMPLE_BYTES
        self._session.send(self._partial(agreed.open, audio_ms))

    def _partial(self, words: list[Piece], audio_ms: int) -> Segment | None:
        if not self._speech.job.wants_partials:
            return None
        for whole in _joined(words):
            start_ms = min(max(whole.start_ms, self._session.segments.end_ms), audio_ms)
            return Segment(
                text=whole.text,
                start_ms=start_ms,
                end_ms=max(start_ms, min(whole.end_ms, audio_ms)),
                no_speech=whole.no_speech,
            )
        return None


def _joined(words: list[Piece]) -> list[Piece]:
    """Join words into one piece; no words give no piece."""
    if not words:
        return []
    return [
        words[0]._replace(
            text=b"".join(word.text for word in words),
            end_ms=words[-1].end_ms,
            tokens=tuple(token for word in words for token in word.tokens),
        )
    ]
