"""Write answers: prompts, a context with slots, and the decoder that uses them."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from inferd.backend import BackendCapabilities
from inferd.config import Family
from inferd.dialects.generic import GENERIC
from inferd.dialects.inert import SpelledError
from inferd.dialects.named import NAMED, is_name
from inferd.dialects.prompts import Prompts
from inferd.dialects.registry import DIALECTS, choose
from inferd.dialects.template import ChatTemplate, TemplateError
from inferd.job import GenerateJob, Job, Sampling
from inferd.limits import MAX_SEQUENCES
from inferd.worker.backend import (
    LoadError,
    Outcome,
    PreparedJob,
    PromptOverflowError,
    RefusedError,
)
from inferd.worker.limits import (
    IDLE_SEQUENCES,
    PREFILL_CHUNK_TOKENS,
    TEMPLATE_MEMORY_BYTES,
)
from inferd.worker.llama.constraint import Constraint, Vocabulary
from inferd.worker.llama.context import Context
from inferd.worker.llama.decoder import DecodeError, Decoder
from inferd.worker.llama.gauge import FarTooLongError, Gauge
from inferd.worker.llama.grammar import answer_grammar, grammar_of
from inferd.worker.llama.model import Model
from inferd.worker.llama.prompt import token_texts, tokenize_prompt
from inferd.worker.llama.sampling import Sampler
from inferd.worker.llama.sequence import PreparedPrompt
from inferd.worker.llama.slots import Slots
from inferd.worker.llama.speculation import Speculation
from inferd.worker.memory import BoundedGrowth

_SELF_TEST_TEXT = "Hello"
_SELF_TEST_TOKENS = 4
"""Small enough for the smallest context that can be configured."""
_LAST_ROW = -1
_NAME_CHARS = 40
_PINNING = "chat_template in its [[backend]] can name the family that it follows"


class Generator:
    """A model that writes, and a context with ``n_slots`` sequences."""

    def __init__(  # noqa: PLR0913  # what a model is loaded with
        self,
        model: Model,
        path: Path,
        family: Family | None,
        *,
        n_ctx: int,
        n_slots: int,
        n_threads: int,
        max_saved_bytes: int = 0,
        speculation: Speculation | None = None,
    ) -> None:
        self._model = model
        self._n_ctx = n_ctx
        self._prompts = _load_prompts(model, path, family)
        model.keep(self._prompts.dialect.markers)
        # Now: later it would hold up all answers for a second.
        self._vocabulary = Vocabulary(model)
        self._context = Context(
            model,
            n_ctx=n_ctx * n_slots,
            n_slots=n_slots,
            n_idle=min(IDLE_SEQUENCES, MAX_SEQUENCES - n_slots),
            n_batch=PREFILL_CHUNK_TOKENS,
            n_threads=n_threads,
        )
        slots = Slots(self._context, n_slots=n_slots, max_saved_bytes=max_saved_bytes)
        self._decoder = Decoder(model, self._context, slots, speculation)
        self._speculation = speculation
        self._growth = BoundedGrowth(TEMPLATE_MEMORY_BYTES)

    @property
    def capabilities(self) -> BackendCapabilities:
        """What it can do."""
        return BackendCapabilities(
            v2=True,
            tools=True,
            thinking=self._prompts.abilities.thinks,
            structure=True,
            n_ctx=self._n_ctx,
            dialect=self._prompts.dialect.name,
        )

    @property
    def is_busy(self) -> bool:
        """Whether any job runs."""
        return self._decoder.is_busy

    def use_threads(self, n_threads: int) -> None:
        """Compute with this many threads from the next batch on."""
        self._context.use_threads(n_threads)
        if self._speculation:
            self._speculation.use_threads(n_threads)

    def self_test(self) -> None:
        """Decode for real, so that a build that crashes does so before it is ready.

        Raises:
            LoadError: it fails, or what it gives are no numbers.
        """
        prompt = self._model.tokenize(_SELF_TEST_TEXT)[:_SELF_TEST_TOKENS]
        job = GenerateJob(
            turns=[],
            cache="off",
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
        """Render and tokenise the prompt, compile the grammar and build the sampler.

        Raises:
            RefusedError: the template or the grammar refuses, there are too many
                special tokens in what clients have written, or it takes too long to
                tokenise.
            PromptOverflowError: no room for a token of the answer.
        """
        if not isinstance(job, GenerateJob):
            raise RefusedError("this model writes text and nothing else")
        try:
            with self._growth:
                rendered = self._prompts.render(job)
        except (TemplateError, SpelledError) as error:
            raise RefusedError(str(error)) from error
        prompt = self._tokenized(rendered.pieces)
        if len(prompt) + 1 > self._n_ctx:
            raise PromptOverflowError(len(prompt), self._n_ctx)
        if not prompt:
            raise RefusedError("the prompt is empty: the chat template wrote nothing")
        constraint = self._constraint(job, opens_thought=rendered.opens_thought)
        return PreparedPrompt(
            prompt,
            job,
            min(job.max_tokens, self._n_ctx - len(prompt)),
            Sampler(self._model, job, prompt, constraint),
            opens_thought=rendered.opens_thought,
        )

    def _tokenized(self, pieces: Sequence[str]) -> list[int]:
        try:
            Gauge(self._model, self._n_ctx, parses_special=True).check(pieces)
        except FarTooLongError as error:
            raise PromptOverflowError(
                error.n_tokens, self._n_ctx, at_least=True
            ) from error
        return tokenize_prompt(self._model, pieces)

    def _constraint(
        self, job: GenerateJob, *, opens_thought: bool
    ) -> Constraint | None:
        if not job.is_structured:
            return None
        if job.structure is not None and job.tool_choice.is_forced:
            # nothing is held to it, but a client is told of what it got wrong
            self._vocabulary.compile(grammar_of(job.structure))
        dialect = self._prompts.dialect
        grammar = answer_grammar(
            dialect, job, self._vocabulary.special, opens_thought=opens_thought
        )
        return self._vocabulary.compile(grammar)

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


def _load_prompts(model: Model, path: Path, family: Family | None) -> Prompts:
    """Find out how the model wants its prompts.

    Raises:
        LoadError: its template does not compile, or nothing tells.
    """
    source = model.chat_template or ""
    name = source if is_name(source) else ""
    if not family and (name or not source) and name not in NAMED:
        but = f" but the name {name[:_NAME_CHARS]!r}" if name else ""
        raise LoadError(f"{path} carries no chat template{but}; {_PINNING}")
    found = NAMED.get(name) or choose(model.architecture, "" if name else source)
    dialect = DIALECTS[family] if family else found
    is_kept = source and not name and dialect in (found, GENERIC)
    try:
        with BoundedGrowth(TEMPLATE_MEMORY_BYTES):
            template = (
                ChatTemplate(source, model.special_tokens(), _today)
                if is_kept
                else None
            )
            prompts = Prompts(template, dialect, token_texts(model))
    except TemplateError as error:
        raise LoadError(f"{path}: {error}") from error
    if not prompts.is_sound and not family:
        raise LoadError(
            f"{path}: its chat template leaves out what a user says; {_PINNING}"
        )
    return prompts


def _today() -> dt.datetime:
    return dt.datetime.now().astimezone()
