"""A GGUF model as the worker's threads see it."""

import os
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import msgspec

from inferd.capabilities import AcceleratorInfo, AcceleratorKind
from inferd.config import LlamaCppSettings
from inferd.fit import Demand, Share
from inferd.ipc import Loaded, Loading
from inferd.job import Job
from inferd.worker.backend import (
    LoadError,
    Outcome,
    PreparedJob,
    Report,
    WorkerBackend,
)
from inferd.worker.files import check_sha256
from inferd.worker.llama.encoder import Encoder
from inferd.worker.llama.files import Files, open_files
from inferd.worker.llama.generator import Generator
from inferd.worker.llama.guessing import make_speculation
from inferd.worker.llama.library import Library, accelerator, load_library
from inferd.worker.llama.model import Model
from inferd.worker.llama.predict import predict
from inferd.worker.llama.seeing import Seeing
from inferd.worker.llama.threads import OtherLoad, ThreadGovernor


class LlamaBackend(WorkerBackend):
    """One model, which writes, embeds or scores.

    Args:
        settings: as configured.
        n_slots: jobs that are to run at once.
        crashed: variants of the library that are not to be used.
        files: that the settings name, if they are open already.

    Raises:
        LoadError: a file cannot be opened, or is no GGUF file that could be loaded.
    """

    _model: Model
    _engine: Generator | Encoder

    def __init__(
        self,
        settings: LlamaCppSettings,
        *,
        n_slots: int,
        crashed: Collection[str] = (),
        files: Files | None = None,
    ) -> None:
        self._settings = settings
        self._files = files or open_files(settings)
        self._n_slots = n_slots
        self._crashed = crashed
        self._path = Path(settings.model)
        self._library = Library()
        n_cores = len(os.sched_getaffinity(0))
        self._governor = ThreadGovernor(
            n_cores=n_cores, max_threads=settings.n_threads or n_cores
        )
        self._others = OtherLoad()

    def predict(self, report: Report) -> Demand:
        """Verify the files, and see what serving it takes.

        Raises:
            LoadError: it cannot be served.
        """
        self._verify_files(report)
        self._library = load_library(
            report, wanted=self._settings.cpu_variant, crashed=self._crashed
        )
        self._refuse_missing_accelerator()
        mapping = Loading(phase="mmap", path=str(self._path))
        report(mapping)
        return predict(
            self._files, self._settings, self._n_slots, lambda: report(mapping)
        )

    def load(self, report: Report, share: Share | None = None) -> Loaded:
        """Load the file, make a context as large as its share, compute a little.

        Raises:
            LoadError: any of these failed.
        """
        if share is None:
            demand = self.predict(report)
            share = Share(n_slots=self._n_slots, n_ctx=demand.n_ctx, store=demand.store)
        path = self._path
        mapping = Loading(phase="mmap", path=str(path))
        self._model = Model(self._files.model, self._settings, lambda: report(mapping))
        self._engine = self._make_engine(share, report)
        self._engine.use_threads(1)  # more wait long for one another beside others
        self._engine.self_test()
        if isinstance(self._engine, Generator):
            self._engine.prepare_grammars()
        if self._settings.sha256:
            self._files.model.refuse_changed()
        if self._settings.mmproj_sha256 and self._files.projector:
            self._files.projector.refuse_changed()
        able = msgspec.structs.replace(
            self._engine.capabilities,
            model=self._model.name or path.stem,
            cpu_variant=self._library.cpu_variant,
            accelerator=AcceleratorInfo(
                kind=accelerator(), gpu_layers=self._n_gpu_layers
            ),
        )
        return Loaded(
            capabilities=able,
            library=self._library.description,
            marker_tokens=self._model.kept,
            facts=self._engine.facts if isinstance(self._engine, Generator) else b"",
        )

    def words(self) -> bytes:
        """Give the vocabulary that grammars are tried for; waits for it."""
        return self._engine.words() if isinstance(self._engine, Generator) else b""

    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedJob:
        """Render and tokenise what a job reads, and read its media.

        Raises:
            RefusedError: it cannot be served as it stands.
            PromptOverflowError: no room for a token of the answer.
        """
        prepared = (
            self._engine.prepare(job, fds)
            if isinstance(self._engine, Generator)
            else self._engine.prepare(job)
        )
        for fd in fds:  # what was in them is read
            os.close(fd)
        return prepared

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
        if window := self._others.measure():
            self._governor.observe(window)
        self._engine.use_threads(self._governor.threads(self._n_busy))
        return self._engine.step()

    @property
    def _n_busy(self) -> int:
        return self._engine.n_busy if isinstance(self._engine, Generator) else 0

    def interrupt(self, ticket: int) -> None:
        """Cut a long step of this job short."""
        self._engine.interrupt(ticket)

    @property
    def is_busy(self) -> bool:
        """Whether any job runs."""
        return self._engine.is_busy

    def _make_engine(self, share: Share, report: Report) -> Generator | Encoder:
        n_threads = self._governor.threads(0)
        report(Loading(phase="kv_cache", n_ctx=share.n_ctx))
        if self._model.use == "generate":
            return Generator(
                self._model,
                self._path,
                self._settings.chat_template,
                n_ctx=share.n_ctx,
                n_slots=share.n_slots,
                n_threads=n_threads,
                max_saved_bytes=share.store if self._settings.prompt_cache_mb else None,
                speculation=make_speculation(
                    self._settings,
                    self._files.draft,
                    share,
                    report,
                    n_threads=n_threads,
                ),
                seeing=self._make_seeing(report, n_threads),
            )
        return Encoder(self._model, n_ctx=share.n_ctx, n_threads=n_threads)

    def _make_seeing(self, report: Report, n_threads: int) -> Seeing | None:
        if (file := self._files.projector) is None:
            return None
        return Seeing.load(
            file, self._model, self._settings, report, n_threads=n_threads
        )

    def _verify_files(self, report: Report) -> None:
        for file, expected in (
            (self._files.model, self._settings.sha256),
            (self._files.projector, self._settings.mmproj_sha256),
        ):
            if file is None:
                continue
            report(Loading(phase="checking_local", path=str(file.path)))
            if expected:
                verifying = Loading(phase="verify", path=str(file.path))
                report(verifying)
                check_sha256(file, expected, partial(report, verifying))

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
