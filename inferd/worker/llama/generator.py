"""Write answers: a chat template, a context with slots, and the decoder that uses them."""

import datetime as dt
from pathlib import Path

import numpy as np

from inferd.backend import BackendCapabilities
from inferd.dialects.template import ChatTemplate, TemplateError
from inferd.job import GenerateJob, Job, Sampling
from inferd.limits import PREFILL_CHUNK_TOKENS
from inferd.worker.backend import (
    LoadError,
    Outcome,
    PreparedJob,
    PromptOverflowError,
    RefusedError,
)
from inferd.worker.llama.context import Context
from inferd.worker.llama.decoder import DecodeError, Decoder, PreparedPrompt
from inferd.worker.llama.model import Model
from inferd.worker.llama.sampling import Sampler

_SELF_TEST_TEXT = "Hello"
_SELF_TEST_TOKENS = 4
"""Small enough for the smallest context that can be configured."""
_LAST_ROW = -1


class Generator:
    """A model that writes, and a context with ``n_slots`` sequences."""

    def __init__(
        self, model: Model, path: Path, *, n_ctx: int, n_slots: int, n_threads: int
    ) -> None:
        self._model = model
        self._n_ctx = n_ctx
        self._template = _load_template(model, path)
        self._context = Context(
            model,
            n_ctx=n_ctx * n_slots,
            n_slots=n_slots,
            n_batch=PREFILL_CHUNK_TOKENS,
            n_threads=n_threads,
        )
        self._decoder = Decoder(model, self._context, n_slots=n_slots)

    @property
    def capabilities(self) -> BackendCapabilities:
        """What it can do."""
        return BackendCapabilities(v2=True, n_ctx=self._n_ctx)

    @property
    def is_busy(self) -> bool:
        """Whether any job runs."""
        return self._decoder.is_busy

    def use_threads(self, n_threads: int) -> None:
        """Compute with this many threads from the next batch on."""
        self._context.use_threads(n_threads)

    def self_test(self) -> None:
        """Decode for real, so that a build that crashes does so before it is ready.

        Raises:
            LoadError: it fails, or what it gives are no numbers.
        """
        prompt = self._model.tokenize(_SELF_TEST_TEXT)[:_SELF_TEST_TOKENS]
        job = GenerateJob(
            messages=[],
            max_tokens=_SELF_TEST_TOKENS,
            sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
        )
        sampler = Sampler(self._model, job, prompt)
        self._decoder.start(0, PreparedPrompt(prompt, job, job.max_tokens, sampler))
        try:
            while self.is_busy:
                self._decoder.step()
        except DecodeError as error:
            raise LoadError(f"decode self-test failed: {error}") from error
        if not np.isfinite(self._context.logits(_LAST_ROW, self._model.n_vocab)).all():
            raise LoadError("decode self-test failed: logits are not finite")

    def prepare(self, job: Job) -> PreparedPrompt:
        """Render and tokenise the prompt, and build the sampler.

        Raises:
            RefusedError: the template or the grammar refuses.
            PromptOverflowError: no room for a token of the answer.
        """
        if not isinstance(job, GenerateJob):
            raise RefusedError("this model writes text and nothing else")
        try:
            prompt = self._model.tokenize(self._template.render(job.messages))
        except TemplateError as error:
            raise RefusedError(str(error)) from error
        if len(prompt) + 1 > self._n_ctx:
            raise PromptOverflowError(len(prompt), self._n_ctx)
        if not prompt:
            raise RefusedError("the prompt is empty: the chat template wrote nothing")
        room = self._n_ctx - len(prompt)
        sampler = Sampler(self._model, job, prompt)
        return PreparedPrompt(prompt, job, min(job.max_tokens, room), sampler)

    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Give a job a slot."""
        assert isinstance(prepared, PreparedPrompt)  # noqa: S101  # ours come from prepare alone
        self._decoder.start(ticket, prepared)

    def drop(self, ticket: int) -> None:
        """Free a job's slot."""
        self._decoder.drop(ticket)

    def interrupt(self, ticket: int) -> None:
        """Cut a prefill of this job short."""
        self._decoder.interrupt(ticket)

    def step(self) -> list[Outcome]:
        """Advance every running job."""
        return self._decoder.step()


def _load_template(model: Model, path: Path) -> ChatTemplate:
    source = model.chat_template
    if source is None:
        raise LoadError(f"{path} carries no chat template")
    try:
        return ChatTemplate(source, model.special_tokens(), _today)
    except TemplateError as error:
        raise LoadError(f"{path}: {error}") from error


def _today() -> dt.datetime:
    return dt.datetime.now().astimezone()
