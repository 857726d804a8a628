"""Generate text: prompt preparation, a context with slots, and its batch decoder."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from inferd.backend.capabilities import BackendCapabilities
from inferd.backend.job import GenerateJob, Job, RenderedJob, Sampling
from inferd.config.choices import Family
from inferd.dialects.prompt.renderer import PromptRenderer
from inferd.limits.worker import TEMPLATE_MEMORY_BYTES
from inferd.worker.backend import (
    LoadError,
    PromptOverflowError,
    RefusedError,
)
from inferd.worker.llama.generate.decoder import BatchDecoder, DecodeError
from inferd.worker.llama.generate.sampler import Sampler
from inferd.worker.llama.generate.sequence import PreparedPrompt
from inferd.worker.llama.generate.slots import Slots
from inferd.worker.llama.grammar.background import BackgroundValue
from inferd.worker.llama.grammar.constraint import (
    Constraint,
    ConstraintError,
    GrammarVocabulary,
)
from inferd.worker.llama.model.chat_template import load_prompts
from inferd.worker.llama.model.context import LlamaContext
from inferd.worker.llama.model.length_check import FarTooLongError, LengthCheck
from inferd.worker.llama.model.prompt_tokens import (
    refuse_unknown,
    split_at_marker,
    tokenize_prompt,
)
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.multimodal.media import Modalities
from inferd.worker.llama.multimodal.pipeline import MediaPipeline
from inferd.worker.llama.multimodal.prompt_spans import PromptMedia, interleave
from inferd.worker.llama.prepare.model_info import encode_model_info
from inferd.worker.llama.prepare.write import call_prefixes_of, write_prompt
from inferd.worker.llama.speculation.drafter import Speculation
from inferd.worker.process_memory import GrowthLimit

_SELF_TEST_TEXT = "Hello"
_SELF_TEST_TOKENS = 2
"""Small enough for the smallest context that can be configured."""
_LAST_ROW = -1


def generator_capabilities(
    model: LlamaModel,
    prompts: PromptRenderer,
    modalities: Modalities,
    *,
    n_ctx: int,
    n_slots: int,
) -> BackendCapabilities:
    """Return the capabilities of a text model; its weights need not be loaded."""
    return BackendCapabilities(
        v2=True,
        vision=modalities.vision,
        audio=bool(modalities.sample_rate),
        audio_sample_rate=modalities.sample_rate,
        tools=True,
        thinking=prompts.features.thinks,
        structure=True,
        n_ctx=n_ctx,
        n_slots=n_slots,
        cache_type_k=model.cache_types[0],
        cache_type_v=model.cache_types[1],
        dialect=prompts.dialect.name,
    )


class Generator:
    """A text model, its context with ``n_slots`` sequences, and the decoder that runs them.

    ``prepare`` makes jobs ready for ``decoder``.
    """

    def __init__(  # noqa: PLR0913  # all that a model is loaded with
        self,
        model: LlamaModel,
        path: Path,
        family: Family | None,
        *,
        n_ctx: int,
        n_slots: int,
        n_threads: int,
        max_saved_bytes: int | None = None,
        paused_bytes: int = 0,
        speculation: Speculation | None = None,
        media_pipeline: MediaPipeline | None = None,
    ) -> None:
        self._model = model
        self._media_pipeline = media_pipeline
        self._media_lock = threading.Lock()
        self._n_ctx = n_ctx
        self._n_slots = n_slots
        self._prompts, prompt_format = load_prompts(model, path, family)
        self.prompt_format = encode_model_info(prompt_format)
        """The model's prompt format, encoded for the process that renders prompts."""
        model.render_markers(self._prompts.dialect.markers)
        self._context = LlamaContext.for_generation(
            model, n_tokens=n_ctx * n_slots, n_slots=n_slots, n_threads=n_threads
        )
        slots = Slots(
            self._context, max_saved_bytes=max_saved_bytes, paused_bytes=paused_bytes
        )
        media_prefill = (
            media_pipeline.make_prefill(self._context) if media_pipeline else None
        )
        self.decoder = BatchDecoder(
            model, self._context, slots, speculation, media_prefill
        )
        self._speculation = speculation
        self._growth = GrowthLimit(TEMPLATE_MEMORY_BYTES)
        self._grammars = BackgroundValue(lambda: GrammarVocabulary(model))

    @property
    def capabilities(self) -> BackendCapabilities:
        """The capabilities to report to the daemon."""
        modalities = (
            self._media_pipeline.modalities if self._media_pipeline else Modalities()
        )
        return generator_capabilities(
            self._model,
            self._prompts,
            modalities,
            n_ctx=self._n_ctx,
            n_slots=self._n_slots,
        )

    def use_threads(self, n_threads: int) -> None:
        """Compute with this many threads from the next batch on."""
        self._context.use_threads(n_threads)
        if self._speculation:
            self._speculation.use_threads(n_threads)

    def self_test(self) -> None:
        """Decode a few tokens, so that a broken build crashes before the worker is ready.

        Raises:
            LoadError: decoding failed, or the logits are not finite.
        """
        prompt = self._model.tokenize(_SELF_TEST_TEXT)[:_SELF_TEST_TOKENS]
        job = GenerateJob(
            turns=[],
            cache="off",
            max_tokens=_SELF_TEST_TOKENS,
            sampling=Sampling(temperature=0, top_p=1, top_k=0, seed=0),
        )
        sampler = Sampler(self._model, job, prompt)
        self.decoder.start(0, PreparedPrompt(prompt, job, job.max_tokens, sampler))
        try:
            while self.decoder.is_busy:
                self.decoder.step()
        except DecodeError as error:
            raise LoadError(f"decode self-test failed: {error}") from error
        if not np.isfinite(self._context.logits(_LAST_ROW, self._model.n_vocab)).all():
            raise LoadError("decode self-test failed: logits are not finite")
        if self._media_pipeline:
            self._media_pipeline.projector_thread.self_test()

    def start_grammar_setup(self) -> None:
        """Build the vocabulary for grammars in the background, which takes up to 2 s.

        Unconstrained jobs do not wait for it. Built later, it would delay running jobs,
        because it holds the interpreter lock for part of that time.
        """
        self._grammars.start()

    @property
    def n_busy_cores(self) -> int:
        """Cores that background work of this worker uses beside decoding."""
        n_encoding = (
            self._media_pipeline.projector_thread.n_threads
            if self._media_pipeline
            else 0
        )
        return int(self._grammars.is_running) + n_encoding

    @property
    def _vocabulary(self) -> GrammarVocabulary:
        return self._grammars.get()

    def token_table(self) -> bytes:
        """Return the vocabulary for checking grammars; blocks until it is built."""
        return encode_model_info(
            self._vocabulary.token_table(call_prefixes_of(self._prompts))
        )

    def prepare(self, job: Job, fds: Sequence[int] = ()) -> PreparedPrompt:
        """Tokenise the prompt, compile the grammar and build the sampler.

        Prompts that are not plain were rendered in the preparer process, because this
        thread cannot be stopped.

        Args:
            job: a generation job.
            fds: file descriptors of its media.

        Raises:
            RefusedError: the template refuses, the client's text holds too many special
                tokens, a token is not in the vocabulary, an attachment cannot be read, or
                tokenising takes too long.
            PromptOverflowError: the context has no position left for an answer.
        """
        if not isinstance(job, GenerateJob):
            raise RefusedError("this model generates text and nothing else")
        if job.media and self._media_pipeline is None:
            raise RefusedError("this model takes no attachments")
        rendered = self._render(job)
        texts = self._texts(job, rendered.pieces)
        media = self._read_media(job, fds)
        prompt, spans = interleave(texts, media)
        if len(prompt) + 1 > self._n_ctx:
            raise PromptOverflowError(len(prompt), self._n_ctx)
        if not prompt:
            raise RefusedError(
                "the prompt is empty: the chat template rendered no text"
            )
        if prompt[-1] < 0:
            raise RefusedError("the chat template renders no text after an attachment")
        constraint = self._constraint(rendered.grammar)
        return PreparedPrompt(
            prompt,
            job,
            min(job.max_tokens, self._n_ctx - len(prompt)),
            Sampler(self._model, job, prompt, constraint),
            open_thought=rendered.open_thought,
            media=tuple(media),
            spans=tuple(spans),
        )

    def _texts(self, job: GenerateJob, pieces: Sequence[str]) -> list[list[int]]:
        """Return the tokens of a prompt's texts, between which its media are."""
        if job.input_tokens:
            refuse_unknown(job.input_tokens, self._model.n_vocab, "input_tokens")
            return [job.input_tokens]
        return self._tokenize(pieces, job)

    def _read_media(self, job: GenerateJob, fds: Sequence[int]) -> list[PromptMedia]:
        if self._media_pipeline is None:
            return []
        with self._media_lock:  # two threads call prepare
            return self._media_pipeline.read_media(job, fds)

    def _tokenize(self, pieces: Sequence[str], job: GenerateJob) -> list[list[int]]:
        """Tokenise a prompt: one list before, between and after each of its media.

        Raises:
            RefusedError: the template does not render each attachment exactly once.
        """
        texts = split_at_marker(job.marker, pieces) if job.media else [pieces]
        if len(texts) != len(job.media) + 1:
            raise RefusedError(
                f"the chat template renders {len(texts) - 1} of {len(job.media)} attachments"
            )
        try:
            LengthCheck(self._model, self._n_ctx, parses_special=True).refuse_too_long(
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

    def _render(self, job: GenerateJob) -> RenderedJob:
        if job.rendered is not None:
            return job.rendered
        if job.input_tokens:
            return RenderedJob(pieces=())
        if not job.is_plain:
            raise RuntimeError("a prompt that is not plain was not rendered")
        with self._growth:
            return write_prompt(self._prompts, job)
