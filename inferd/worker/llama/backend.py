"""A GGUF model as the worker's threads see it."""

import os
from pathlib import Path

import msgspec

from inferd.backend import AcceleratorInfo, AcceleratorKind
from inferd.config import LlamaCppSettings
from inferd.ipc import Loaded, Loading
from inferd.job import Job
from inferd.limits import DEFAULT_CONTEXT_TOKENS
from inferd.worker.backend import (
    LoadError,
    Outcome,
    PreparedJob,
    Report,
    WorkerBackend,
)
from inferd.worker.llama.draft_model import DraftModel, check_draft_model
from inferd.worker.llama.encoder import Encoder
from inferd.worker.llama.files import check_gguf, check_sha256
from inferd.worker.llama.generator import Generator
from inferd.worker.llama.library import accelerator, load_library
from inferd.worker.llama.model import Model
from inferd.worker.llama.speculation import LookupDrafter, Speculation
from inferd.worker.llama.threads import OtherLoad, ThreadGovernor


class LlamaBackend(WorkerBackend):
    """One model, which writes, embeds or scores."""

    _model: Model
    _engine: Generator | Encoder

    def __init__(self, settings: LlamaCppSettings, *, n_slots: int) -> None:
        self._settings = settings
        self._n_slots = n_slots
        n_cores = len(os.sched_getaffinity(0))
        self._governor = ThreadGovernor(
            n_cores=n_cores, max_threads=settings.n_threads or n_cores
        )
        self._others = OtherLoad()

    def load(self, report: Report) -> Loaded:
        """Check the file, load it, make a context, compute a little.

        Raises:
            LoadError: any of these failed.
        """
        path = self._check_file(report)
        library = load_library()
        self._refuse_missing_accelerator()
        report(Loading(phase="mmap", path=str(path)))
        self._model = Model(
            path, self._settings, lambda: report(Loading(phase="mmap", path=str(path)))
        )
        self._engine = self._make_engine(path, report)
        self._engine.self_test()
        able = msgspec.structs.replace(
            self._engine.capabilities,
            model=self._model.name or path.stem,
            accelerator=AcceleratorInfo(
                kind=accelerator(), gpu_layers=self._n_gpu_layers
            ),
        )
        return Loaded(capabilities=able, library=library)

    def prepare(self, job: Job) -> PreparedJob:
        """Render and tokenise what a job reads.

        Raises:
            RefusedError: it cannot be served as it stands.
            PromptOverflowError: no room for a token of the answer.
        """
        return self._engine.prepare(job)

    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Give the job a slot."""
        if not self.is_busy:
            self._others.resume()
        self._engine.start(ticket, prepared)

    def drop(self, ticket: int) -> None:
        """Free the job's slot."""
        self._engine.drop(ticket)

    def step(self) -> list[Outcome]:
        """Advance every running job, with the threads that others leave."""
        if (load := self._others.measure()) is not None:
            self._engine.use_threads(self._governor.observe(load))
        return self._engine.step()

    def interrupt(self, ticket: int) -> None:
        """Cut a long step of this job short."""
        self._engine.interrupt(ticket)

    @property
    def is_busy(self) -> bool:
        """Whether any job runs."""
        return self._engine.is_busy

    def _make_engine(self, path: Path, report: Report) -> Generator | Encoder:
        default = min(DEFAULT_CONTEXT_TOKENS, self._model.n_ctx_train)
        n_ctx = self._settings.n_ctx or default
        n_threads = self._governor.n_threads
        if self._model.use == "generate":
            report(Loading(phase="kv_cache", n_ctx=n_ctx))
            return Generator(
                self._model,
                path,
                self._settings.chat_template,
                n_ctx=n_ctx,
                n_slots=self._n_slots,
                n_threads=n_threads,
                max_saved_bytes=self._settings.prompt_cache_mb * 2**20,
                speculation=self._speculation(n_ctx, n_threads, report),
            )
        if self._settings.speculation != "off":
            raise LoadError(
                f"{self._asked_for}: {path} does not write; 'off' is allowed"
            )
        encoder = Encoder(self._model, n_ctx=n_ctx, n_threads=n_threads)
        report(Loading(phase="kv_cache", n_ctx=encoder.capabilities.n_ctx))
        return encoder

    def _speculation(
        self, n_ctx: int, n_threads: int, report: Report
    ) -> Speculation | None:
        """Make what guesses ahead, as configured.

        Raises:
            LoadError: the model cannot take guesses back, or the draft model cannot guess
                for it.
        """
        settings = self._settings
        if settings.speculation == "off":
            return None
        if self._model.is_recurrent:
            raise LoadError(
                f"{self._asked_for}: the model keeps a state that no token can be taken "
                "out of again; 'off' is allowed"
            )
        if settings.draft_model is None:
            return Speculation(LookupDrafter(), settings.draft_max)
        path = Path(settings.draft_model)
        report(Loading(phase="mmap", path=str(path)))
        check_gguf(path)
        draft = Model(
            path,
            LlamaCppSettings(name="draft", n_gpu_layers=settings.n_gpu_layers),
            lambda: report(Loading(phase="mmap", path=str(path))),
        )
        check_draft_model(draft, self._model, path)
        drafter = DraftModel(
            draft, n_ctx=n_ctx, n_slots=self._n_slots, n_threads=n_threads
        )
        return Speculation(drafter, settings.draft_max)

    @property
    def _asked_for(self) -> str:
        return f"speculation = {self._settings.speculation!r}"

    def _check_file(self, report: Report) -> Path:
        path = Path(self._settings.model)
        report(Loading(phase="checking_local", path=str(path)))
        check_gguf(path)
        if expected := self._settings.sha256:
            verifying = Loading(phase="verify", path=str(path))
            report(verifying)
            check_sha256(path, expected, lambda: report(verifying))
        return path

    @property
    def _n_gpu_layers(self) -> int:
        wanted = self._settings.n_gpu_layers
        return self._model.n_layers if wanted < 0 else min(wanted, self._model.n_layers)

    def _refuse_missing_accelerator(self) -> None:
        if self._settings.n_gpu_layers and accelerator() is AcceleratorKind.CPU:
            raise LoadError(
                f"n_gpu_layers = {self._settings.n_gpu_layers}: this build of llama.cpp "
                "has no accelerator; 0 is allowed"
            )
