"""Write answers: prompts, a context with slots, and the decoder that uses them."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from inferd.capabilities import BackendCapabilities
from inferd.choices import Family
from inferd.job import GenerateJob, Job, Sampling, Written
from inferd.worker.backend import (
    LoadError,
    Outcome,
    PreparedJob,
    PromptOverflowError,
    RefusedError,
)
from inferd.worker.limits import TEMPLATE_MEMORY_BYTES
from inferd.worker.llama.constraint import Constraint, ConstraintError, Vocabulary
from inferd.worker.llama.context import Context
from inferd.worker.llama.decoder import DecodeError, Decoder
from inferd.worker.llama.facts import encode
from inferd.worker.llama.gauge import FarTooLongError, Gauge
from inferd.worker.llama.later import Later
from inferd.worker.llama.media import Senses
from inferd.worker.llama.model import Model
from inferd.worker.llama.prompt import cut_at, tokenize_prompt
from inferd.worker.llama.prompting import load_prompts
from inferd.worker.llama.sampling import Sampler
from inferd.worker.llama.seeing import Seeing
from inferd.worker.llama.sequence import PreparedPrompt
from inferd.worker.llama.slots import Slots
from inferd.worker.llama.spans import Seen, join
from inferd.worker.llama.speculation import Speculation
from inferd.worker.llama.writing import openings_of, write_prompt
from inferd.worker.memory import BoundedGrowth

_SELF_TEST_TEXT = "Hello"
_SELF_TEST_TOKENS = 2
"""Small enough for the smallest context that can be configured."""
_LAST_ROW = -1


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
        max_saved_bytes: int | None = None,
        speculation: Speculation | None = None,
        seeing: Seeing | None = None,
    ) -> None:
        self._model = model
        self._seeing = seeing
        self._looking = threading.Lock()
        self._n_ctx = n_ctx
        self._n_slots = n_slots
        self._prompts, facts = load_prompts(model, path, family)
        self.facts = encode(facts)
        """How it wants its prompts, for the process that writes them."""
        model.keep(self._prompts.dialect.markers)
        self._context = Context.to_write(
            model, n_tokens=n_ctx * n_slots, n_slots=n_slots, n_threads=n_threads
        )
        slots = Slots(self._context, max_saved_bytes=max_saved_bytes)
        looking = seeing.looking_into(self._context) if seeing else None
        self._decoder = Decoder(model, self._context, slots, speculation, looking)
        self._speculation = speculation
        self._growth = BoundedGrowth(TEMPLATE_MEMORY_BYTES)
        self._grammars = Later(lambda: Vocabulary(model))

    @property
    def capabilities(self) -> BackendCapabilities:
        """What it can do."""
        senses = self._seeing.senses if self._seeing else Senses()
        return BackendCapabilities(
            v2=True,
            vision=senses.vision,
            audio=bool(senses.sample_rate),
            audio_sample_rate=senses.sample_rate,
            tools=True,
            thinking=self._prompts.abilities.thinks,
            structure=True,
            n_ctx=self._n_ctx,
            n_slots=self._n_slots,
            cache_type_k=self._model.cache_types[0],
            cache_type_v=self._model.cache_types[1],
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
        if self._seeing:
            self._seeing.projecting.self_test()

    def prepare_grammars(self) -> None:
        """Begin to make what grammars need: two seconds that plain answers need not wait.

        Begun later it would hold up those that run: it lets no other thread run at times.
        """
        self._grammars.begin()

    @property
    def n_busy(self) -> int:
        """Cores that are taken by what it does beside decoding."""
        n_seeing = self._seeing.projecting.n_threads if self._seeing else 0
        return int(self._grammars.is_being_made) + n_seeing

    @property
    def _vocabulary(self) -> Vocabulary:
        return self._grammars.get()

    def words(self) -> bytes:
        """Give the vocabulary that grammars are tried for; waits for it."""
        return encode(self._vocabulary.words(openings_of(self._prompts)))

    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedPrompt:
        """Tokenise the prompt, compile the grammar and build the sampler.

        Whatever is more than a plain prompt has been written elsewhere: this thread
        cannot be stopped.

        Args:
            job: that writes.
            fds: of the files with its media.

        Raises:
            RefusedError: the template refuses, there are too many special tokens in what
                clients have written, a medium cannot be read, or it takes too long to
                tokenise.
            PromptOverflowError: no room for a token of the answer.
        """
        if not isinstance(job, GenerateJob):
            raise RefusedError("this model writes text and nothing else")
        if job.media and self._seeing is None:
            raise RefusedError("this model takes no attachments")
        written = self._written(job)
        texts = self._tokenized(written.pieces, job)
        media = self._seen(job, fds)
        prompt, spans = join(texts, media)
        if len(prompt) + 1 > self._n_ctx:
            raise PromptOverflowError(len(prompt), self._n_ctx)
        if not prompt:
            raise RefusedError("the prompt is empty: the chat template wrote nothing")
        if prompt[-1] < 0:
            raise RefusedError("the chat template writes nothing behind an attachment")
        constraint = self._constraint(written.grammar)
        return PreparedPrompt(
            prompt,
            job,
            min(job.max_tokens, self._n_ctx - len(prompt)),
            Sampler(self._model, job, prompt, constraint),
            open_thought=written.open_thought,
            media=tuple(media),
            spans=tuple(spans),
        )

    def _seen(self, job: GenerateJob, fds: Sequence[int]) -> list[Seen]:
        if self._seeing is None:
            return []
        with self._looking:  # two threads prepare
            return self._seeing.see(job, fds)

    def _tokenized(self, pieces: Sequence[str], job: GenerateJob) -> list[list[int]]:
        """Cut a prompt into tokens: those before, between and behind its media.

        Raises:
            RefusedError: the template has not written each of them once.
        """
        texts = cut_at(job.marker, pieces) if job.media else [pieces]
        if len(texts) != len(job.media) + 1:
            raise RefusedError(
                f"the chat template writes {len(texts) - 1} of {len(job.media)} attachments"
            )
        try:
            Gauge(self._model, self._n_ctx, parses_special=True).check(
                [piece for text in texts for piece in text]
            )
        except FarTooLongError as error:
            raise PromptOverflowError(
                error.n_tokens, self._n_ctx, at_least=True
            ) from error
        return tokenize_prompt(self._model, texts)

    def _constraint(self, grammar: str) -> Constraint | None:
        if not grammar:
            return None
        try:
            return self._vocabulary.compile(grammar)
        except ConstraintError as error:
            raise RefusedError(str(error)) from error

    def _written(self, job: GenerateJob) -> Written:
        if job.written is not None:
            return job.written
        if not job.is_plain:
            raise RuntimeError("more than a plain prompt, and it is not written")
        with self._growth:
            return write_prompt(self._prompts, job)

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
