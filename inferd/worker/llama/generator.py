"""Write answers: prompts, a context with slots, and the decoder that uses them."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from inferd.capabilities import BackendCapabilities
from inferd.choices import Family
from inferd.dialects.inert import SpelledError
from inferd.dialects.template import TemplateError
from inferd.job import GenerateJob, Job, Sampling, Structure
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
from inferd.worker.llama.gauge import FarTooLongError, Gauge
from inferd.worker.llama.grammar import (
    Grammar,
    answer_grammar,
    grammar_of,
    leaves_choice,
    refuse_ends,
    refuse_names,
)
from inferd.worker.llama.helper import Helper
from inferd.worker.llama.later import Later
from inferd.worker.llama.media import Senses
from inferd.worker.llama.model import Model
from inferd.worker.llama.prompt import cut_at, tokenize_prompt
from inferd.worker.llama.prompting import load_prompts
from inferd.worker.llama.sampling import Sampler
from inferd.worker.llama.seeing import Seeing
from inferd.worker.llama.sequence import PreparedPrompt
from inferd.worker.llama.slots import Slots
from inferd.worker.llama.spans import join
from inferd.worker.llama.speculation import Speculation
from inferd.worker.memory import BoundedGrowth

_SELF_TEST_TEXT = "Hello"
_SELF_TEST_TOKENS = 2
"""Small enough for the smallest context that can be configured."""
_LAST_ROW = -1
_SPELLINGS = 3
"""Of what begins a call; each that is looked for in a structure takes milliseconds."""


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
        paused_bytes: int = 0,
        speculation: Speculation | None = None,
        helper: Helper | None = None,
        seeing: Seeing | None = None,
    ) -> None:
        self._model = model
        self._seeing = seeing
        self._n_ctx = n_ctx
        self._n_slots = n_slots
        self._prompts = load_prompts(model, path, family)
        model.keep(self._prompts.dialect.markers)
        self._context = Context.to_write(
            model, n_tokens=n_ctx * n_slots, n_slots=n_slots, n_threads=n_threads
        )
        slots = Slots(
            self._context, max_saved_bytes=max_saved_bytes, paused_bytes=paused_bytes
        )
        looking = seeing.looking_into(self._context) if seeing else None
        self._decoder = Decoder(model, self._context, slots, speculation, looking)
        self.pause, self.resume = self._decoder.pause, self._decoder.resume
        self._speculation = speculation
        self._growth = BoundedGrowth(TEMPLATE_MEMORY_BYTES)
        self._grammars = Later(lambda: Vocabulary(model, helper))

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

    @cached_property
    def _ends(self) -> dict[str, int]:
        """The tokens that end a turn, by what they are called."""
        named = self._vocabulary.special
        return {each: named[each] for each in named if self._model.is_end(named[each])}

    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedPrompt:
        """Render and tokenise the prompt, compile the grammar and build the sampler.

        Args:
            job: that writes.
            fds: of the files with its media.

        Raises:
            RefusedError: the template or the grammar refuses, the family cannot write
                a tool's name, there are too many special tokens in what clients have
                written, a medium cannot be read, or it takes too long to tokenise.
            PromptOverflowError: no room for a token of the answer.
        """
        if not isinstance(job, GenerateJob):
            raise RefusedError("this model writes text and nothing else")
        if job.media and self._seeing is None:
            raise RefusedError("this model takes no attachments")
        refuse_names(self._prompts.dialect, job)
        try:
            with self._growth:
                rendered = self._prompts.render(job)
        except (TemplateError, SpelledError) as error:
            raise RefusedError(str(error)) from error
        texts = self._tokenized(rendered.pieces, job)
        media = self._seeing.see(job, fds) if self._seeing else []
        prompt, spans = join(texts, media)
        if len(prompt) + 1 > self._n_ctx:
            raise PromptOverflowError(len(prompt), self._n_ctx)
        if not prompt:
            raise RefusedError("the prompt is empty: the chat template wrote nothing")
        if prompt[-1] < 0:
            raise RefusedError("the chat template writes nothing behind an attachment")
        constraint = self._constraint(job, open_thought=rendered.open_thought)
        return PreparedPrompt(
            prompt,
            job,
            min(job.max_tokens, self._n_ctx - len(prompt)),
            Sampler(self._model, job, prompt, constraint),
            open_thought=rendered.open_thought,
            media=tuple(media),
            spans=tuple(spans),
        )

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

    def _constraint(self, job: GenerateJob, *, open_thought: str) -> Constraint | None:
        if not job.is_structured:
            return None
        if job.structure is not None:
            refuse_ends(job.structure, self._ends)
        if job.structure is not None and job.tool_choice.is_forced:
            # nothing is held to it, but a client is told of what it got wrong
            self._vocabulary.compile(grammar_of(job.structure))
        dialect = self._prompts.dialect
        grammar = answer_grammar(
            dialect, job, self._vocabulary.special, open_thought=open_thought
        )
        constraint = self._vocabulary.compile(grammar)
        if job.structure is not None and leaves_choice(job):
            self._refuse_alike(job.structure, grammar)
        return constraint

    def _refuse_alike(self, structure: Structure, whole: Grammar) -> None:
        """Refuse a text that may begin as a call does, which then could not be told.

        A grammar follows the longest piece that goes on: where a text's is longer than a
        call's, no call could be written, and where it holds a whole marker, it would be
        read as a call.
        """
        alone = grammar_of(structure)
        for region in self._prompts.dialect.regions:
            if region.holds != "calls":
                continue
            is_lost = region.only_first and not self._allows(whole, region.begins[0])
            usual = region.begins[:_SPELLINGS]
            alike = [each for each in usual if self._allows(alone, each)]
            for begin in region.begins[:1] if is_lost else alike[:1]:
                raise RefusedError(
                    f"{structure.field}: the text may begin as a tool call does, with "
                    f"{json.dumps(begin)}; tool_choice may be none, or force a call"
                )

    def _allows(self, grammar: Grammar, text: str) -> bool:
        """Tell whether an answer may begin with a text, or the token that it is."""
        constraint = self._vocabulary.compile(grammar)
        special = self._vocabulary.special
        marker = next((each for each in special if each and text.startswith(each)), "")
        tokens = [special[marker]] if marker else None
        try:
            constraint.accept(tokens or self._vocabulary.cut(text.encode(), after=None))
        except ConstraintError:
            return False
        return True

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
