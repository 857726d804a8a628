"""Worker backend for whisper models."""

import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.job import SAMPLE_BYTES, Job, TranscribeJob
from inferd.config.kinds.whispercpp import WhisperCppSettings
from inferd.ipc.worker import Loaded, Loading, Paused, Transcribed
from inferd.limits.worker import SPEECH_PROMPT_BYTES, SPEECH_STEP_S
from inferd.memory.plan import MemoryDemand, MemoryShare
from inferd.models.facts.whisper_facts import size_name
from inferd.models.store.directory import BLOBS
from inferd.worker.backend import (
    LoadError,
    LoadReporter,
    PreparedJob,
    PromptOverflowError,
    RefusedError,
    StepOutcome,
    WorkerBackend,
)
from inferd.worker.model_file import check_sha256
from inferd.worker.native.threads import CpuLoadMeter, ThreadGovernor
from inferd.worker.whisper.library import description, load_library
from inferd.worker.whisper.model.file import WhisperFile, open_file
from inferd.worker.whisper.model.memory import predict_memory, state_bytes
from inferd.worker.whisper.model.weights import ENGLISH, WhisperModel
from inferd.worker.whisper.transcribe.audio import SAMPLE_RATE, AudioFile
from inferd.worker.whisper.transcribe.inference import (
    InferenceCallbacks,
    InferenceError,
    InferenceOptions,
    WhisperState,
)
from inferd.worker.whisper.transcribe.scheduler import JobThread, Scheduler
from inferd.worker.whisper.transcribe.session import (
    AUTO,
    PreparedSpeech,
    TranscriptionSession,
)
from inferd.worker.whisper.transcribe.streaming import MAX_PROMPT_TOKENS, transcribe

_CONTEXT_TOKENS: Final = MAX_PROMPT_TOKENS + 1
"""Context size reported with an overflow: the protocol counts one token of the answer."""
_TEST_POSITIONS: Final = 64
_TEST_STEPS: Final = 3
"""Steps of the self-test: encode a chunk, decode the prompt, decode a token. The test ends
there, as silence may make a model try for long."""


class WhisperBackend(WorkerBackend):
    """Backend with one whisper model, which transcribes speech.

    Args:
        settings: of the backend.
        n_slots: jobs that may run at once.
        file: the model file, if it is open already.

    Raises:
        LoadError: the file cannot be opened or is not a valid model.
    """

    _model: WhisperModel

    def __init__(
        self,
        settings: WhisperCppSettings,
        *,
        n_slots: int,
        file: WhisperFile | None = None,
    ) -> None:
        self._settings = settings
        self._n_slots = n_slots
        self._file = file or open_file(settings)
        self._scheduler = Scheduler()
        self._speeches: dict[int, PreparedSpeech] = {}
        n_cores = len(os.sched_getaffinity(0))
        self._governor = ThreadGovernor(
            n_cores=n_cores, max_threads=settings.n_threads or n_cores
        )
        self._cpu_load = CpuLoadMeter()

    def verify(self, report: LoadReporter) -> None:
        """Compare the digest that is configured.

        Raises:
            LoadError: it differs.
        """
        path = self._settings.model
        report(Loading(phase="checking_local", path=path))
        if expected := self._settings.sha256:
            verifying = Loading(phase="verify", path=path)
            report(verifying)
            check_sha256(self._file, expected, lambda: report(verifying))

    def predict(self, report: LoadReporter) -> MemoryDemand:  # noqa: ARG002  # it takes no time
        """Predict the memory that serving the file takes.

        Raises:
            LoadError: the library does not load.
        """
        load_library()
        return predict_memory(self._file, self._n_slots)

    def load(self, report: LoadReporter, share: MemoryShare | None = None) -> Loaded:
        """Load the model, and test it with half a second of silence.

        Raises:
            LoadError: either failed.
        """
        if share is None:
            self.verify(report)
            demand = self.predict(report)
            share = MemoryShare(
                n_slots=self._n_slots, n_ctx=demand.n_ctx, pause=demand.pause
            )
        self._scheduler.max_parked = share.pause // state_bytes(self._file.header)
        report(Loading(phase="mmap", path=self._settings.model))
        self._model = WhisperModel(self._file)
        self._self_test()
        return Loaded(
            capabilities=self._capabilities(share.n_slots),
            library=description(self._model.library),
        )

    def outline(
        self,
        report: LoadReporter,  # noqa: ARG002  # it takes no time
        share: MemoryShare | None = None,
    ) -> Loaded:
        """Return the capabilities: the file was checked when it was opened."""
        n_slots = self._n_slots if share is None else share.n_slots
        return Loaded(capabilities=self._capabilities(n_slots), library="")

    def _capabilities(self, n_slots: int) -> BackendCapabilities:
        return BackendCapabilities(
            generate=False,
            v2=True,
            audio=True,
            transcribe=True,
            audio_sample_rate=SAMPLE_RATE,
            model=self._name(),
            n_slots=n_slots,
        )

    def _name(self) -> str:
        """Return the name of the file; that of its size if the store has named the file."""
        path = Path(self._settings.model)
        is_stored = path.parent.name == BLOBS
        return (is_stored and size_name(self._file.header)) or path.stem

    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedJob:
        """Tokenise the prompt, and check all samples that have arrived.

        Raises:
            RefusedError: the job cannot be transcribed.
            PromptOverflowError: the prompt is longer than the model can use.
        """
        if not isinstance(job, TranscribeJob):
            raise RefusedError("this model can only transcribe speech")
        [fd] = fds
        audio = AudioFile(fd, job.audio.id, job.audio.n_bytes // SAMPLE_BYTES)
        self._check_language(job)
        _check_format(job, audio)
        prompt = self._tokenize_prompt(job.prompt)
        audio.check()
        return PreparedSpeech(job, audio, prompt)

    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Schedule the job."""
        assert isinstance(prepared, PreparedSpeech)  # noqa: S101  # ours come from prepare alone
        if not self._scheduler.is_busy:
            self._cpu_load.resume()
        self._speeches[ticket] = prepared
        self._scheduler.add(JobThread(ticket, partial(self._perform, prepared)))

    def append_audio(self, ticket: int, n_bytes: int, *, is_last: bool) -> None:
        """Record that more of a job's audio has arrived."""
        if speech := self._speeches.get(ticket):
            speech.audio.n_samples = n_bytes // SAMPLE_BYTES
            speech.is_whole = speech.is_whole or is_last

    def pause(self, ticket: int) -> None:
        """Pause the job after the current chunk."""
        self._scheduler.pause(ticket)

    def resume(self, ticket: int) -> None:
        """Resume the job."""
        if not self._scheduler.is_busy:
            self._cpu_load.resume()
        self._scheduler.resume(ticket)

    def drop(self, ticket: int) -> None:
        """Drop the job; it ends as soon as it can."""
        self._speeches.pop(ticket, None)
        self._scheduler.drop(ticket)

    def interrupt(self, ticket: int) -> None:
        """End the job at its next token, if it runs."""
        self._scheduler.interrupt(ticket)

    def step(self) -> list[StepOutcome]:
        """Run the next job for half a second or until its chunk ends.

        A job whose chunk takes longer goes on in the next step.
        """
        if parked := self._scheduler.park():
            return [Paused(ticket=ticket) for ticket in parked]
        if window := self._cpu_load.measure():
            self._governor.observe(window)
        thread = self._scheduler.step(SPEECH_STEP_S)
        if thread is None:
            return []
        outcomes = thread.outcomes()
        if thread.is_over:
            self._speeches.pop(thread.ticket, None)
        elif not outcomes and thread.made_progress():
            outcomes.append(Transcribed(ticket=thread.ticket))
        return outcomes

    @property
    def is_busy(self) -> bool:
        """Whether any job can run."""
        return self._scheduler.is_busy

    def _perform(self, speech: PreparedSpeech, thread: JobThread) -> None:
        with closing(speech):
            TranscriptionSession(self._model, speech, thread, self._n_threads).perform(
                transcribe
            )

    def _n_threads(self) -> int:
        return self._governor.threads(0)

    def _tokenize_prompt(self, text: str) -> tuple[int, ...]:
        if (n_bytes := len(text.encode())) > SPEECH_PROMPT_BYTES:
            raise PromptOverflowError(n_bytes // 4, _CONTEXT_TOKENS, at_least=True)
        tokens = self._model.tokenize(text)
        if len(tokens) > MAX_PROMPT_TOKENS:
            raise PromptOverflowError(len(tokens), _CONTEXT_TOKENS)
        return tokens

    def _check_language(self, job: TranscribeJob) -> None:
        known = self._model.languages
        if job.language not in (None, AUTO, *known):
            raise RefusedError(
                f"language {job.language!r}: the model knows {', '.join(known)}; "
                f"{AUTO} detects it"
            )
        if job.translates and not self._model.header.is_multilingual:
            raise RefusedError(f"translate: the model knows only {ENGLISH}")

    def _self_test(self) -> None:
        n_steps = 0

        def is_over() -> bool:
            nonlocal n_steps
            n_steps += 1
            return n_steps >= _TEST_STEPS

        silence = np.zeros(SAMPLE_RATE // 2, np.float32)
        options = InferenceOptions(audio_ctx=_TEST_POSITIONS)
        try:
            state = WhisperState(self._model)
            state.run(
                silence,
                options,
                InferenceCallbacks(lambda _: None, should_abort=is_over),
            )
            state.close()
        except InferenceError as error:
            raise LoadError(f"self-test failed: {error}") from error


def _check_format(job: TranscribeJob, audio: AudioFile) -> None:
    if job.audio.sample_rate != SAMPLE_RATE:
        raise RefusedError(
            f'attachment "{audio.name}" has {job.audio.sample_rate} samples per second, '
            f"the model takes {SAMPLE_RATE}"
        )
    if not audio.n_samples and not job.audio.is_open:
        raise RefusedError(f'attachment "{audio.name}" has no samples')
