"""A job that is being heard: what is the same for sounds that are there and that come."""

import os
import weakref
from collections.abc import Callable
from typing import Final

from inferd.ipc import Segment, TranscriptEnded
from inferd.job import TranscribeJob
from inferd.wire.responses import Usage
from inferd.worker.backend import PreparedJob
from inferd.worker.whisper.listening import Hooks, Listener, Options, Piece
from inferd.worker.whisper.model import ENGLISH, Model
from inferd.worker.whisper.sound import MS, RATE, Samples, Sound, positions
from inferd.worker.whisper.transcript import Transcript
from inferd.worker.whisper.turns import DroppedError, Turn

AUTO: Final = "auto"
FEWEST: Final = RATE // 10 + 40
"""Samples below which the library hears nothing: ten frames of 10 ms. It reads 200 samples
in any case, so it is not asked then."""


class Speech(PreparedJob):
    """A job that can be heard.

    Ownership:
        Holds the sound's descriptor as long as it lives, or until it is closed.
    """

    def __init__(
        self, job: TranscribeJob, sound: Sound, prompt: tuple[int, ...]
    ) -> None:
        self.job = job
        self.sound = sound
        self.prompt = prompt
        """Tokens of the words that may come up."""
        self.is_whole = not job.audio.is_open
        """Whether nothing of the sound is to come."""
        self._close = weakref.finalize(self, os.close, sound.fd)

    def close(self) -> None:
        """Close the sound; it will not be heard."""
        self._close()

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, and places of the sound that is there."""
        return len(self.prompt) + positions(self.sound.n_samples)


class Session:
    """A job with its turns, its room to hear in, and what was heard."""

    def __init__(
        self, model: Model, speech: Speech, turn: Turn, n_threads: Callable[[], int]
    ) -> None:
        self.speech = speech
        self.turn = turn
        self.transcript = Transcript(turn.ticket, speech.job.max_tokens)
        self.n_heard = 0
        """Samples, from the first one."""
        self._model = model
        self._n_threads = n_threads
        self._listener: Listener | None = None
        self.language_probability: float | None = None
        wanted = speech.job.language
        is_auto = wanted is None or wanted == AUTO
        self._finds_language = is_auto and model.header.is_multilingual
        self.language = ENGLISH if is_auto or wanted is None else wanted
        """Its code, as far as it is known."""

    def perform(self, hear: Callable[["Session"], None]) -> None:
        """Hear the sound, and tell what came of it."""
        if not self.transcript.is_full:
            try:
                hear(self)
            finally:
                self.rest()
        if self.transcript.has_news:
            self.tell()
        self.turn.tell(self._ended())

    def rest(self) -> None:
        """Free the room to hear in; there is new room when something is heard again."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _room(self) -> Listener:
        if self._listener is None:
            self._listener = Listener(self._model)
        return self._listener

    def find_language(self, samples: Samples) -> None:
        """Find the language, unless it is known."""
        if self._finds_language and len(samples) >= FEWEST:
            found = self._room().detect(samples, self._n_threads())
            self.language, self.language_probability = found
            self.turn.pause()

    def keep_language(self) -> None:
        """Take the language that was found for that of all the rest."""
        self._finds_language = False

    def tell(self, partial: Segment | None = None) -> None:
        """Tell what was heard since it was last told."""
        self.turn.tell(self.transcript.take(partial))

    def listen(
        self, samples: Samples, options: Options, hear: Callable[[list[Piece]], None]
    ) -> None:
        """Have the library hear samples; others may compute between two chunks.

        Args:
            samples: to be heard.
            options: for it, threads and what the job says apart.
            hear: told of each segment.

        Raises:
            DroppedError: nobody wants the job any more.
            ListeningError: the library failed.
        """
        if len(samples) < FEWEST:
            return
        job = self.speech.job
        options = options._replace(
            n_threads=self._n_threads(),
            language=self.language,
            translates=job.translates,
            temperature=job.temperature,
        )
        self._room().listen(samples, options, Hooks(hear, self._go_on, self._is_over))
        if self.turn.is_dropped:
            raise DroppedError

    def audio_ms(self) -> int:
        """Tell how long the sound is that was heard."""
        return self.n_heard // MS

    def _go_on(self) -> bool:
        if self.transcript.is_full:
            return False
        self.tell()
        self.turn.pause()
        return True

    def _is_over(self) -> bool:
        return self.turn.beat() or self.transcript.is_full

    def _ended(self) -> TranscriptEnded:
        usage = Usage(
            prompt_tokens=len(self.speech.prompt) + positions(self.n_heard),
            completion_tokens=self.transcript.n_tokens,
        )
        return TranscriptEnded(
            ticket=self.turn.ticket,
            stop_reason="length" if self.transcript.is_full else "end",
            usage=usage,
            language=self.language,
            language_probability=self.language_probability,
            audio_ms=self.audio_ms(),
            computing_ms=self.turn.computed_ms,
        )
