"""The worker's backend for GGUF models."""

import os
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import msgspec

from inferd.backend.capabilities import (
    MAX_DEVICE_NAME_CHARS,
    AcceleratorInfo,
    BackendCapabilities,
)
from inferd.backend.job import Job
from inferd.config.kinds.llamacpp import LlamaCppSettings, n_gpu_layers
from inferd.ipc.worker import Loaded, Loading
from inferd.memory.plan import MemoryDemand, MemoryShare
from inferd.worker.backend import (
    LoadReporter,
    PreparedJob,
    StepOutcome,
    WorkerBackend,
)
from inferd.worker.llama.encoder import Encoder
from inferd.worker.llama.generate.decoder import BatchDecoder
from inferd.worker.llama.generator import Generator
from inferd.worker.llama.gguf.files import ModelFiles, open_files
from inferd.worker.llama.library.binding import Library, load_library
from inferd.worker.llama.library.devices import kind_of, list_devices
from inferd.worker.llama.memory.placement import place_layers
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.multimodal.pipeline import MediaPipeline
from inferd.worker.llama.outline import open_outline, outline_capabilities
from inferd.worker.llama.speculation.setup import make_speculation
from inferd.worker.model_file import check_sha256
from inferd.worker.native.threads import CpuLoadMeter, ThreadGovernor


class LlamaBackend(WorkerBackend):
    """One GGUF model, which generates text, embeds or reranks.

    Args:
        settings: as configured.
        n_slots: jobs that run at once.
        crashed: CPU variants of the library that must not be used.
        files: the files that the settings name, if they are open already.

    Raises:
        LoadError: a file cannot be opened, or is not a GGUF file that can be loaded.
    """

    _model: LlamaModel
    _engine: Generator | Encoder
    """Prepares jobs."""
    _runner: BatchDecoder | Encoder
    """Runs them."""

    def __init__(
        self,
        settings: LlamaCppSettings,
        *,
        n_slots: int,
        crashed: Collection[str] = (),
        files: ModelFiles | None = None,
    ) -> None:
        self._settings = settings
        self._files = files or open_files(settings)
        self._n_slots = n_slots
        self._crashed = crashed
        self._path = Path(settings.model)
        self._library = Library()
        n_cores = len(os.sched_getaffinity(0))
        max_threads = settings.n_threads or n_cores
        self._governor = ThreadGovernor(n_cores=n_cores, max_threads=max_threads)
        self._has_spare_cores = max_threads < n_cores
        self._cpu_load = CpuLoadMeter()
        self._n_busy = -1  # the first step sets the number of threads

    def verify(self, report: LoadReporter) -> None:
        """Compare the digests that are configured.

        Raises:
            LoadError: one differs.
        """
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

    def predict(self, report: LoadReporter) -> MemoryDemand:
        """Predict the memory that serving the model takes.

        Raises:
            LoadError: the model cannot be served.
        """
        self._library = load_library(
            report, wanted=self._settings.cpu_variant, crashed=self._crashed
        )
        mapping = Loading(phase="mmap", path=str(self._path))
        report(mapping)
        self._settings, demand = place_layers(
            self._files, self._settings, self._n_slots, lambda: report(mapping)
        )
        return demand

    def load(self, report: LoadReporter, share: MemoryShare | None = None) -> Loaded:
        """Load the model, create a context for its memory share, and run a self-test.

        Raises:
            LoadError: one of these steps failed.
        """
        if share is None:
            self.verify(report)
            demand = self.predict(report)
            share = MemoryShare(
                n_slots=self._n_slots,
                n_ctx=demand.n_ctx,
                store=demand.store,
                pause=demand.pause,
            )
        path = self._path
        mapping = Loading(phase="mmap", path=str(path))
        self._model = LlamaModel(
            self._files.model, self._settings, lambda: report(mapping)
        )
        self._engine = self._make_engine(share, report)
        self._runner = (
            self._engine.decoder
            if isinstance(self._engine, Generator)
            else self._engine
        )
        self._engine.use_threads(
            1
        )  # several would wait for one another if other processes are busy
        self._engine.self_test()
        if isinstance(self._engine, Generator):
            self._engine.start_grammar_setup()
        if self._settings.sha256:
            self._files.model.refuse_if_changed()
        if self._settings.mmproj_sha256 and self._files.projector:
            self._files.projector.refuse_if_changed()
        return Loaded(
            capabilities=self._with_names(self._engine.capabilities),
            library=self._library.description,
            marker_tokens=self._model.marker_texts,
            prompt_format=self._engine.prompt_format
            if isinstance(self._engine, Generator)
            else b"",
        )

    def outline(self, report: LoadReporter, share: MemoryShare | None = None) -> Loaded:
        """Load the vocabulary and the chat template, without weights or a context.

        Raises:
            LoadError: the model cannot be served.
        """
        share = share or MemoryShare(n_slots=self._n_slots, n_ctx=0)
        self._model = open_outline(self._files.model, self._settings, report)
        capabilities = outline_capabilities(
            self._model, self._files, self._settings, share
        )
        return Loaded(
            capabilities=self._with_names(capabilities),
            library=self._library.description,
        )

    def _with_names(self, capabilities: BackendCapabilities) -> BackendCapabilities:
        """Add what all models of this library report."""
        return msgspec.structs.replace(
            capabilities,
            model=self._model.name or self._path.stem,
            cpu_variant=self._library.cpu_variant,
            accelerator=self._accelerator_info(),
        )

    def token_table(self) -> bytes:
        """Return the vocabulary for checking grammars; blocks until it is built."""
        return (
            self._engine.token_table() if isinstance(self._engine, Generator) else b""
        )

    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedJob:
        """Render and tokenise a job's input, and read its media.

        Raises:
            RefusedError: the job cannot be served as it is.
            PromptOverflowError: the context has no position left for an answer.
        """
        prepared = (
            self._engine.prepare(job, fds)
            if isinstance(self._engine, Generator)
            else self._engine.prepare(job)
        )
        for fd in fds:  # their contents were read
            os.close(fd)
        return prepared

    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Assign a slot to the job and run it."""
        if not self.is_busy:
            self._cpu_load.resume()
        self._runner.start(ticket, prepared)

    def pause(self, ticket: int) -> None:
        """Pause the job at the next token boundary."""
        self._runner.pause(ticket)

    def resume(self, ticket: int) -> None:
        """Resume a paused job."""
        if not self.is_busy:
            self._cpu_load.resume()
        self._runner.resume(ticket)

    def drop(self, ticket: int) -> None:
        """Remove the job and free its slot."""
        self._runner.drop(ticket)

    def step(self) -> list[StepOutcome]:
        """Advance every running job, on the cores that other processes leave free."""
        n_busy = self._engine.n_busy_cores
        cpu_load = self._cpu_load.measure()
        if cpu_load or n_busy != self._n_busy:
            self._n_busy = n_busy
            if cpu_load:
                self._governor.observe(cpu_load)
            self._engine.use_threads(self._governor.threads(n_busy))
        return self._runner.step()

    def interrupt(self, ticket: int) -> None:
        """Abort the current step if a prompt or audio of this job makes it long.

        Any thread may call.
        """
        self._runner.interrupt(ticket)

    @property
    def leaves_cores(self) -> bool:
        """Whether it computes on an accelerator, or with fewer threads than there are cores."""
        return self._has_spare_cores or n_gpu_layers(self._settings) != 0

    @property
    def is_busy(self) -> bool:
        """Whether any job runs."""
        return self._runner.is_busy

    def _make_engine(
        self, share: MemoryShare, report: LoadReporter
    ) -> Generator | Encoder:
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
                paused_bytes=share.pause,
                speculation=make_speculation(
                    self._settings,
                    self._files.draft,
                    share,
                    report,
                    n_threads=n_threads,
                ),
                media_pipeline=self._make_media_pipeline(report, n_threads),
            )
        return Encoder(self._model, n_ctx=share.n_ctx, n_threads=n_threads)

    def _make_media_pipeline(
        self, report: LoadReporter, n_threads: int
    ) -> MediaPipeline | None:
        if (file := self._files.projector) is None:
            return None
        return MediaPipeline.load(
            file, self._model, self._settings, report, n_threads=n_threads
        )

    def _accelerator_info(self) -> AcceleratorInfo:
        n_all, wanted = self._model.n_layers, n_gpu_layers(self._settings)
        devices = list_devices()
        names = ", ".join(each.description for each in devices)
        return AcceleratorInfo(
            kind=kind_of(devices),
            gpu_layers=n_all if wanted < 0 else min(wanted, n_all),
            device_name=names[:MAX_DEVICE_NAME_CHARS],
            vram_total_bytes=sum(each.total_bytes for each in devices),
            vram_free_bytes=sum(each.free_bytes for each in devices),
        )
