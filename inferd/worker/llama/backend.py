"""A GGUF model as the worker's threads see it."""

import datetime as dt
import os
from pathlib import Path

import numpy as np

from inferd.backend import AcceleratorInfo, AcceleratorKind, BackendCapabilities
from inferd.config import LlamaCppSettings
from inferd.dialects.template import ChatTemplate, TemplateError
from inferd.ipc import Loading, Step
from inferd.job import GenerateJob, Sampling
from inferd.limits import DEFAULT_CONTEXT_TOKENS, PREFILL_CHUNK_TOKENS
from inferd.worker.backend import (
    LoadError,
    PreparedJob,
    PromptOverflowError,
    RefusedError,
    Report,
    WorkerBackend,
)
from inferd.worker.llama.decoder import DecodeError, Decoder, PreparedPrompt
from inferd.worker.llama.files import check_gguf, check_sha256
from inferd.worker.llama.library import accelerator, load_library
from inferd.worker.llama.model import Context, Model
from inferd.worker.llama.sampling import Sampler
from inferd.worker.llama.threads import OtherLoad, ThreadGovernor

_SELF_TEST_TEXT = "Hello"
_SELF_TEST_TOKENS = 4
"""Small enough for the smallest context that can be configured."""
_LAST_ROW = -1


class LlamaBackend(WorkerBackend):
    """One model, one context, ``n_slots`` sequences."""

    _model: Model
    _template: ChatTemplate
    _context: Context
    _decoder: Decoder
    _n_ctx: int

    def __init__(self, settings: LlamaCppSettings, *, n_slots: int) -> None:
        self._settings = settings
        self._n_slots = n_slots
        n_cores = len(os.sched_getaffinity(0))
        self._governor = ThreadGovernor(
            n_cores=n_cores, max_threads=settings.n_threads or n_cores
        )
        self._others = OtherLoad()

    def load(self, report: Report) -> tuple[BackendCapabilities, str]:
        """Check the file, load it, make a context, decode a few tokens.

        Raises:
            LoadError: any of these failed.
        """
        path = self._check_file(report)
        library = load_library()
        self._refuse_missing_accelerator()
        report(Loading(phase="mmap", path=str(path)))
        self._model = Model(
            path,
            n_gpu_layers=self._settings.n_gpu_layers,
            alive=lambda: report(Loading(phase="mmap", path=str(path))),
        )
        if not self._model.is_generative:
            raise LoadError(f"{path} is no generative model")
        self._template = self._load_template(path)
        self._n_ctx = self._choose_context()
        report(Loading(phase="kv_cache", n_ctx=self._n_ctx))
        self._context = Context(
            self._model,
            n_ctx=self._n_ctx,
            n_slots=self._n_slots,
            n_batch=PREFILL_CHUNK_TOKENS,
            n_threads=self._governor.n_threads,
        )
        self._decoder = Decoder(self._model, self._context, n_slots=self._n_slots)
        self._self_test()
        return self._capabilities(path), library

    def prepare(self, job: GenerateJob) -> PreparedJob:
        """Render and tokenise the prompt, and build the sampler.

        Raises:
            RefusedError: the template or the grammar refuses.
            PromptOverflowError: no room for a token of the answer.
        """
        try:
            prompt = self._model.tokenize(self._template.render(job.messages))
        except TemplateError as error:
            raise RefusedError(str(error)) from error
        if len(prompt) + 1 > self._n_ctx:
            raise PromptOverflowError(len(prompt), self._n_ctx)
        if not prompt:
            raise RefusedError("the prompt is empty: the chat template wrote nothing")
        room = self._n_ctx - len(prompt)
        sampler = Sampler(self._model, job.sampling)
        return PreparedPrompt(prompt, min(job.max_tokens, room), sampler)

    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Give the job a slot."""
        if not self.is_busy:
            self._others.restart()
        assert isinstance(prepared, PreparedPrompt)  # noqa: S101  # ours come from prepare alone
        self._decoder.start(ticket, prepared)

    def drop(self, ticket: int) -> None:
        """Free the job's slot."""
        self._decoder.drop(ticket)

    def step(self) -> Step:
        """Advance every running job, with the threads that others leave."""
        if (load := self._others.measure()) is not None:
            self._context.use_threads(self._governor.observe(load))
        return self._decoder.step()

    def interrupt(self, ticket: int) -> None:
        """Cut a prefill of this job short."""
        self._decoder.interrupt(ticket)

    @property
    def is_busy(self) -> bool:
        """Whether any job runs."""
        return self._decoder.is_busy

    def _check_file(self, report: Report) -> Path:
        path = Path(self._settings.model)
        report(Loading(phase="checking_local", path=str(path)))
        check_gguf(path)
        if expected := self._settings.sha256:
            verifying = Loading(phase="verify", path=str(path))
            report(verifying)
            check_sha256(path, expected, lambda: report(verifying))
        return path

    def _load_template(self, path: Path) -> ChatTemplate:
        source = self._model.chat_template
        if source is None:
            raise LoadError(f"{path} carries no chat template")
        try:
            return ChatTemplate(source, self._model.special_tokens(), _today)
        except TemplateError as error:
            raise LoadError(f"{path}: {error}") from error

    def _choose_context(self) -> int:
        return self._settings.n_ctx or min(
            DEFAULT_CONTEXT_TOKENS, self._model.n_ctx_train
        )

    def _self_test(self) -> None:
        """Decode for real, so that a build that crashes does so before it is ready."""
        prompt = self._model.tokenize(_SELF_TEST_TEXT)[:_SELF_TEST_TOKENS]
        sampler = Sampler(
            self._model, Sampling(temperature=0, top_p=1, top_k=0, seed=0)
        )
        self._decoder.start(0, PreparedPrompt(prompt, _SELF_TEST_TOKENS, sampler))
        try:
            while self.is_busy:
                self.step()
        except DecodeError as error:
            raise LoadError(f"decode self-test failed: {error}") from error
        if not np.isfinite(self._context.logits(_LAST_ROW, self._model.n_vocab)).all():
            raise LoadError("decode self-test failed: logits are not finite")

    def _capabilities(self, path: Path) -> BackendCapabilities:
        return BackendCapabilities(
            n_ctx=self._n_ctx,
            model=self._model.metadata("general.name") or path.stem,
            accelerator=AcceleratorInfo(
                kind=accelerator(), gpu_layers=self._n_gpu_layers
            ),
        )

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


def _today() -> dt.datetime:
    return dt.datetime.now().astimezone()
