"""Transcription of a complete recording, window by window."""

from inferd.backend.job import SAMPLE_BYTES
from inferd.worker.whisper.transcribe.audio import SAMPLES_PER_MS
from inferd.worker.whisper.transcribe.inference import InferenceOptions, Piece
from inferd.worker.whisper.transcribe.session import TranscriptionSession
from inferd.worker.whisper.transcribe.windows import Window, next_start, window_at


def transcribe_recording(
    session: TranscriptionSession, *, first: int = 0, prompt: tuple[int, ...] = ()
) -> None:
    """Transcribe all of a recording, or until ``max_tokens`` is reached.

    Args:
        session: of a job whose audio is complete.
        first: the sample to begin at.
        prompt: tokens of the text before that sample.

    Raises:
        JobDroppedError: the job was dropped.
        InferenceError: the library failed.
        RefusedError: a sample is not finite or far too large.
    """
    audio = session.speech.audio
    begin = first
    while first < audio.n_samples and not session.segments.is_full:
        if first:
            session.send()
            session.thread.yield_control()
        window = window_at(first, audio.n_samples)
        continues = first > begin
        options = InferenceOptions(
            prompt=() if continues else prompt, keeps_context=continues
        )
        transcribe_window(session, window, options)
        first = next_start(window, session.segments.end_ms)


def transcribe_window(
    session: TranscriptionSession, window: Window, options: InferenceOptions
) -> list[int]:
    """Transcribe a window as whisper.cpp's own command would; return its tokens.

    Args:
        session: of the job.
        window: the part of the audio.
        options: with the prompt or context before it.

    Raises:
        JobDroppedError: as ``transcribe_recording``, as are the others.
    """
    segments, speech = session.segments, session.speech
    samples = speech.audio.read(window.first, window.n_samples)
    segments.n_bytes_read = window.n_settled * SAMPLE_BYTES
    session.n_samples_done = window.first + window.n_samples
    audio_ms = speech.audio.n_samples // SAMPLES_PER_MS
    tokens: list[int] = []
    session.detect_language(samples)
    session.fix_language()

    def on_segment(pieces: list[Piece]) -> None:
        for piece in pieces:
            segments.add(piece, first_ms=window.first_ms, audio_ms=audio_ms)
            tokens.extend(token.id for token in piece.tokens)

    by_word = speech.job.timestamps == "word"
    options = options._replace(by_word=by_word, limit_ms=window.limit_ms)
    session.run(samples, options, on_segment)
    return tokens
