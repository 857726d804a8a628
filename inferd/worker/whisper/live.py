"""Hear a sound that still comes."""

from typing import Final

from inferd.ipc import Segment, Silent
from inferd.job import SAMPLE_BYTES
from inferd.worker.limits import LIVE_NEW_S
from inferd.worker.whisper.agreement import FULL_MS, Agreed, Agreement
from inferd.worker.whisper.listening import Options, Piece
from inferd.worker.whisper.recording import hear_recording, hear_window
from inferd.worker.whisper.session import Session
from inferd.worker.whisper.sound import MS, RATE, Samples
from inferd.worker.whisper.windows import CHUNK, after, ahead_at

PROMPT_TOKENS: Final = 223
"""Tokens of what came before that a model takes note of: half of what it writes, less one."""
_NEW: Final = round(LIVE_NEW_S * RATE)
_FAR: Final = 2 * CHUNK


def hear(session: Session) -> None:
    """Hear a sound, there or still to come.

    Raises:
        DroppedError: nobody wants the job any more.
        ListeningError: the library failed.
        RefusedError: there is a sample in it that nobody can hear.
    """
    if session.speech.is_whole:
        hear_recording(session, prompt=session.speech.prompt)
    else:
        _Live(session).hear()


class _Live:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._speech = session.speech
        self._agreement = Agreement()
        self._prompt = self._speech.prompt[-PROMPT_TOKENS:]

    def hear(self) -> None:
        while not self._session.transcript.is_full:
            if not self._is_worth_it():
                self._wait()
            if self._is_far_behind():
                if self._catch_up():
                    return
            elif self._hear_once():
                return
            self._wait()

    def _wait(self) -> None:
        """Let others compute, and wait until there is enough to hear."""
        if not self._is_worth_it():
            until_bytes = (self._session.n_heard + _NEW) * SAMPLE_BYTES
            ticket = self._session.turn.ticket
            self._session.turn.tell(Silent(ticket=ticket, until_bytes=until_bytes))
        self._session.turn.pause(until=self._is_worth_it, rest=self._session.rest)

    def _is_worth_it(self) -> bool:
        """Tell whether there is so much new that it is listened to again."""
        n_new = self._speech.sound.n_samples - self._session.n_heard
        return self._speech.is_whole or n_new >= _NEW

    def _is_far_behind(self) -> bool:
        """Tell whether what has come is heard as a recording is, each bit once.

        That is so where there is much of it, or no more will come.
        """
        n_ahead = self._speech.sound.n_samples - self._agreement.start_ms * MS
        is_much = n_ahead >= _FAR or self._speech.is_whole
        return self._agreement.is_at_a_seam and is_much

    def _catch_up(self) -> bool:
        """Hear what has come, but for its last chunk; all of it if that is the end."""
        sound, first = self._speech.sound, self._agreement.start_ms * MS
        if self._speech.is_whole:
            hear_recording(self._session, first=first, prompt=self._prompt)
            return True
        window = ahead_at(first, sound.n_samples)
        tokens = hear_window(self._session, window, Options(prompt=self._prompt))
        self._prompt = (*self._prompt, *tokens)[-PROMPT_TOKENS:]
        end = after(window, self._session.transcript.end_ms)
        self._session.n_heard = end
        self._agreement.go_on_at(end // MS)
        self._session.tell()
        return False

    def _hear_once(self) -> bool:
        """Listen to what is not settled; tell whether that was the end."""
        is_whole, n_there = self._speech.is_whole, self._speech.sound.n_samples
        first_ms = self._agreement.start_ms
        end = min(n_there, (first_ms + FULL_MS) * MS)
        samples = self._speech.sound.read(first_ms * MS, end - first_ms * MS)
        self._session.n_heard = end
        self._session.find_language(samples)
        words = self._words(samples, first_ms)
        is_last = is_whole and end == n_there
        self._take(self._agreement.hear(words, end // MS, is_last=is_last))
        return is_last

    def _words(self, samples: Samples, first_ms: int) -> list[Piece]:
        found: list[Piece] = []
        options = Options(by_word=True, prompt=self._prompt)
        self._session.listen(samples, options, found.extend)
        return [
            word._replace(
                start_ms=word.start_ms + first_ms, end_ms=word.end_ms + first_ms
            )
            for word in found
            if word.text
        ]

    def _take(self, agreed: Agreed) -> None:
        transcript, audio_ms = self._session.transcript, self._session.audio_ms()
        by_word = self._speech.job.timestamps == "word"
        settled = agreed.settled
        for piece in settled if by_word else _joined(settled):
            transcript.add(piece, first_ms=0, audio_ms=audio_ms)
        if settled:
            self._session.keep_language()
        self._prompt += tuple(
            token.number for word in agreed.passed for token in word.tokens
        )
        self._prompt = self._prompt[-PROMPT_TOKENS:]
        transcript.n_bytes_read = agreed.start_ms * MS * SAMPLE_BYTES
        self._session.tell(self._partial(agreed.open, audio_ms))

    def _partial(self, words: list[Piece], audio_ms: int) -> Segment | None:
        if not self._speech.job.wants_partials:
            return None
        for whole in _joined(words):
            start_ms = min(
                max(whole.start_ms, self._session.transcript.end_ms), audio_ms
            )
            return Segment(
                text=whole.text,
                start_ms=start_ms,
                end_ms=max(start_ms, min(whole.end_ms, audio_ms)),
                no_speech=whole.no_speech,
            )
        return None


def _joined(words: list[Piece]) -> list[Piece]:
    """Make one piece of words; none of none."""
    if not words:
        return []
    return [
        words[0]._replace(
            text=b"".join(word.text for word in words),
            end_ms=words[-1].end_ms,
            tokens=tuple(token for word in words for token in word.tokens),
        )
    ]
