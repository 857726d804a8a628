"""Hear a sound that is all there, window by window."""

from inferd.job import SAMPLE_BYTES
from inferd.worker.whisper.listening import Options, Piece
from inferd.worker.whisper.session import Session
from inferd.worker.whisper.sound import MS
from inferd.worker.whisper.windows import Window, after, window_at


def hear_recording(
    session: Session, *, first: int = 0, prompt: tuple[int, ...] = ()
) -> None:
    """Hear all of it, or as much as gives the tokens that are wanted.

    Args:
        session: whose sound is all there.
        first: the sample to begin at.
        prompt: tokens of what was said before that.

    Raises:
        DroppedError: nobody wants the job any more.
        ListeningError: the library failed.
        RefusedError: there is a sample in it that nobody can hear.
    """
    sound = session.speech.sound
    begin = first
    while first < sound.n_samples and not session.transcript.is_full:
        if first:
            session.tell()
            session.turn.pause()
        window = window_at(first, sound.n_samples)
        goes_on = first > begin
        options = Options(prompt=() if goes_on else prompt, goes_on=goes_on)
        hear_window(session, window, options)
        first = after(window, session.transcript.end_ms)


def hear_window(session: Session, window: Window, options: Options) -> list[int]:
    """Hear a part of a sound as whisper.cpp's own command would; give its tokens.

    Args:
        session: whose sound it is.
        window: the part.
        options: what was said before it.

    Raises:
        DroppedError: as above, as are the others.
    """
    transcript, speech = session.transcript, session.speech
    samples = speech.sound.read(window.first, window.n_samples)
    transcript.n_bytes_read = window.n_settled * SAMPLE_BYTES
    session.n_heard = window.first + window.n_samples
    audio_ms = speech.sound.n_samples // MS
    tokens: list[int] = []
    session.find_language(samples)
    session.keep_language()

    def hear(pieces: list[Piece]) -> None:
        for piece in pieces:
            transcript.add(piece, first_ms=window.first_ms, audio_ms=audio_ms)
            tokens.extend(token.number for token in piece.tokens)

    by_word = speech.job.timestamps == "word"
    options = options._replace(by_word=by_word, limit_ms=window.limit_ms)
    session.listen(samples, options, hear)
    return tokens
