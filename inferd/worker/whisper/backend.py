"""A whisper model as the worker's threads see it."""

import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from inferd.capabilities import BackendCapabilities
from inferd.config import WhisperCppSettings
from inferd.fit import Demand, Share
from inferd.ipc import Loaded, Loading, Paused, Transcribed
from inferd.job import SAMPLE_BYTES, Job, TranscribeJob
from inferd.worker.backend import (
    LoadError,
    Outcome,
    PreparedJob,
    PromptOverflowError,
    RefusedError,
    Report,
    WorkerBackend,
)
from inferd.worker.files import check_sha256
from inferd.worker.limits import SPEECH_PROMPT_BYTES, SPEECH_STEP_S
from inferd.worker.llama.threads import OtherLoad, ThreadGovernor
from inferd.worker.whisper.files import SpeechFile, open_file
from inferd.worker.whisper.library import description, load_library
from inferd.worker.whisper.listening import (
    Hooks,
    Listener,
    ListeningError,
    Options,
)
from inferd.worker.whisper.live import PROMPT_TOKENS, hear
from inferd.worker.whisper.model import ENGLISH, Model
from inferd.worker.whisper.predict import predict, state_bytes
from inferd.worker.whisper.session import AUTO, Session, Speech
from inferd.worker.whisper.sound import RATE, Sound
from inferd.worker.whisper.turns import Ring, Turn

_CONTEXT_TOKENS: Final = PROMPT_TOKENS + 1
"""What an overflow is counted by: the wire has one token of the answer in it."""
_TEST_POSITIONS: Final = 64
_TEST_BEATS: Final = 3
"""A chunk that is encoded, a prompt, and a token: silence may make a model try for long."""


class WhisperBackend(WorkerBackend):
    """One model, which writes speech down.

    Args:
        settings: as configured.
        n_slots: jobs that are to run at once.
        file: that the settings name, if it is open already.

    Raises:
        LoadError: the file cannot be opened, or is no model that could be loaded.
    """

    _model: Model

    def __init__(
        self,
        settings: WhisperCppSettings,
        *,
        n_slots: int,
        file: SpeechFile | None = None,
    ) -> None:
        self._settings = settings
        self._n_slots = n_slots
        self._file = file or open_file(settings)
        self._ring = Ring()
        self._speeches: dict[int, Speech] = {}
        n_cores = len(os.sched_getaffinity(0))
        self._governor = ThreadGovernor(
            n_cores=n_cores, max_threads=settings.n_threads or n_cores
        )
        self._others = OtherLoad()

    def predict(self, report: Report) -> Demand:
        """Verify the file, and see what serving it takes.

        Raises:
            LoadError: it cannot be served.
        """
        path = self._settings.model
        report(Loading(phase="checking_local", path=path))
        if expected := self._settings.sha256:
            verifying = Loading(phase="verify", path=path)
            report(verifying)
            check_sha256(self._file, expected, lambda: report(verifying))
        load_library()
        return predict(self._file, self._n_slots)

    def load(self, report: Report, share: Share | None = None) -> Loaded:
        """Load the file, and hear a little silence.

        Raises:
            LoadError: either failed.
        """
        if share is None:
            demand = self.predict(report)
            share = Share(n_slots=self._n_slots, n_ctx=demand.n_ctx, pause=demand.pause)
        self._ring.max_resting = share.pause // state_bytes(self._file.header)
        report(Loading(phase="mmap", path=self._settings.model))
        self._model = Model(self._file)
        self._self_test()
        able = BackendCapabilities(
            generate=False,
            v2=True,
            audio=True,
            transcribe=True,
            audio_sample_rate=RATE,
            model=Path(self._settings.model).stem,
            n_slots=share.n_slots,
        )
        return Loaded(capabilities=able, library=description(self._model.library))

    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedJob:
        """Tokenise the prompt, and look at all samples that are there.

        Raises:
            RefusedError: it cannot be heard as it stands.
            PromptOverflowError: the prompt is longer than the model takes note of.
        """
        if not isinstance(job, TranscribeJob):
            raise RefusedError("this model writes speech down, and can do nothing else")
        [fd] = fds
        sound = Sound(fd, job.audio.id, job.audio.n_bytes // SAMPLE_BYTES)
        self._refuse_unknown(job)
        _refuse_unheard(job, sound)
        prompt = self._prompt_of(job.prompt)
        sound.check()
        return Speech(job, sound, prompt)

    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Let the job take part."""
        assert isinstance(prepared, Speech)  # noqa: S101  # ours come from prepare alone
        if not self._ring.is_busy:
            self._others.resume()
        self._speeches[ticket] = prepared
        self._ring.add(Turn(ticket, partial(self._perform, prepared)))

    def append(self, ticket: int, n_bytes: int, *, is_last: bool) -> None:
        """Note that there is more of a job's sound."""
        if speech := self._speeches.get(ticket):
            speech.sound.n_samples = n_bytes // SAMPLE_BYTES
            speech.is_whole = speech.is_whole or is_last

    def pause(self, ticket: int) -> None:
        """Have the job stand still after the chunk that it hears."""
        self._ring.pause(ticket)

    def resume(self, ticket: int) -> None:
        """Have the job go on."""
        if not self._ring.is_busy:
            self._others.resume()
        self._ring.resume(ticket)

    def drop(self, ticket: int) -> None:
        """Forget the job; it ends as soon as it can."""
        self._speeches.pop(ticket, None)
        self._ring.drop(ticket)

    def interrupt(self, ticket: int) -> None:
        """Have the job end soon if it computes: at the next token."""
        self._ring.interrupt(ticket)

    def step(self) -> list[Outcome]:
        """Have the next job hear a chunk, for half a second; it may take longer."""
        if rested := self._ring.rest():
            return [Paused(ticket=ticket) for ticket in rested]
        if window := self._others.measure():
            self._governor.observe(window)
        turn = self._ring.step(SPEECH_STEP_S)
        if turn is None:
            return []
        outcomes = turn.outcomes()
        if turn.is_over:
            self._speeches.pop(turn.ticket, None)
        elif not outcomes and turn.has_beaten():
            outcomes.append(Transcribed(ticket=turn.ticket))
        return outcomes

    @property
    def is_busy(self) -> bool:
        """Whether any job has something to hear."""
        return self._ring.is_busy

    def _perform(self, speech: Speech, turn: Turn) -> None:
        with closing(speech):
            Session(self._model, speech, turn, self._n_threads).perform(hear)

    def _n_threads(self) -> int:
        return self._governor.threads(0)

    def _prompt_of(self, text: str) -> tuple[int, ...]:
        if (n_bytes := len(text.encode())) > SPEECH_PROMPT_BYTES:
            raise PromptOverflowError(n_bytes // 4, _CONTEXT_TOKENS, at_least=True)
        tokens = self._model.tokenize(text)
        if len(tokens) > PROMPT_TOKENS:
            raise PromptOverflowError(len(tokens), _CONTEXT_TOKENS)
        return tokens

    def _refuse_unknown(self, job: TranscribeJob) -> None:
        known = self._model.languages
        if job.language not in (None, AUTO, *known):
            raise RefusedError(
                f"language {job.language!r}: the model knows {', '.join(known)}; "
                f"{AUTO} finds out"
            )
        if job.translates and not self._model.header.is_multilingual:
            raise RefusedError(f"translate: the model knows {ENGLISH} alone")

    def _self_test(self) -> None:
        n_beats = 0

        def is_over() -> bool:
            nonlocal n_beats
            n_beats += 1
            return n_beats >= _TEST_BEATS

        silence = np.zeros(RATE // 2, np.float32)
        options = Options(n_positions=_TEST_POSITIONS)
        try:
            listener = Listener(self._model)
            listener.listen(silence, options, Hooks(lambda _: None, is_over=is_over))
            listener.close()
        except ListeningError as error:
            raise LoadError(f"self-test failed: {error}") from error


def _refuse_unheard(job: TranscribeJob, sound: Sound) -> None:
    if job.audio.sample_rate != RATE:
        raise RefusedError(
            f'attachment "{sound.name}" has {job.audio.sample_rate} samples a second; '
            f"the model hears {RATE}"
        )
    if not sound.n_samples and not job.audio.is_open:
        raise RefusedError(f'attachment "{sound.name}" has no samples')
