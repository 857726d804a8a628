"""A generation job: its prepared prompt and its state while it runs."""

from typing import Final

from inferd.backend.job import GenerateJob
from inferd.limits.worker import OUTPUTS_PER_SLOT
from inferd.worker.backend import PreparedJob
from inferd.worker.llama.generate.prefix_cache import position_of
from inferd.worker.llama.generate.sampler import Sampler
from inferd.worker.llama.multimodal.prompt_spans import MediaSpan, PromptMedia
from inferd.worker.llama.speculation.acceptance import AcceptanceRate


class PreparedPrompt(PreparedJob):
    """A tokenised prompt and the sampler of its answer."""

    def __init__(  # noqa: PLR0913  # all parts of a prompt
        self,
        tokens: list[int],
        job: GenerateJob,
        max_tokens: int,
        sampler: Sampler,
        *,
        open_thought: str = "",
        media: tuple[PromptMedia, ...] = (),
        spans: tuple[MediaSpan, ...] = (),
    ) -> None:
        self.tokens = tokens
        """Tokens of the prompt; negative placeholders for media."""
        self.media = media
        self.spans = spans
        """Positions of the media's chunks in ``tokens``, in order."""
        self.position_skips = tuple(
            (each.end, each.chunk.n_tokens - each.chunk.n_positions)
            for each in spans
            if each.chunk.n_tokens > each.chunk.n_positions
        )
        """Pairs ``(n_tokens, n)``: after ``n_tokens`` tokens, positions lag by ``n`` more."""
        self.job = job
        self.max_tokens = max_tokens
        """Limit of the answer in tokens, by the request and by the context."""
        self.sampler = sampler
        self._open_thought = open_thought

    @property
    def open_thought(self) -> str:
        """The marker of the thought that the prompt ends inside, if any."""
        return self._open_thought

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the rendered prompt."""
        return len(self.tokens)

    def can_begin_at(self, n_tokens: int) -> bool:
        """Tell whether decoding can begin at this token: not inside an atomic chunk."""
        return not any(
            each.chunk.is_atomic and each.begin < n_tokens < each.end
            for each in self.spans
        )


NEVER_PAUSED: Final = -1
"""Value of ``n_cached_at_pause`` before the first pause."""


class RunningSequence:
    """A running generation job: its tokens, its slot, and its progress."""

    def __init__(
        self, ticket: int, slot: int, prepared: PreparedPrompt, *, n_reused: int = 0
    ) -> None:
        self.ticket = ticket
        self.slot = slot
        self.prepared = prepared
        self.job = prepared.job
        self.tokens = list(prepared.tokens)
        self._n_prompt = len(prepared.tokens)
        self.n_most = self._n_prompt + prepared.max_tokens
        """Tokens that prompt and answer may have together."""
        self.n_reused = n_reused
        """Prompt tokens that were taken from the prefix cache."""
        self.n_cached = n_reused
        """Leading tokens that are in the KV cache."""
        self.likely_tokens: list[int] = []
        """Next tokens that the grammar makes likely, decoded along with the known ones."""
        self.drafted_tokens: list[int] = []
        """Tokens after them that speculation predicts, decoded along as well."""
        self.acceptance = AcceptanceRate()
        self.n_cached_at_pause = NEVER_PAUSED
        """``n_cached`` at the latest pause."""

    @property
    def n_written(self) -> int:
        """Tokens of the answer so far."""
        return len(self.tokens) - self._n_prompt

    @property
    def n_draftable(self) -> int:
        """Tokens that a batch may hold beyond the known ones, likely or drafted.

        After each of them one more token may be sampled. More than the answer may still have
        would find no cells, and more than llama.cpp reserves logits for aborts the process.
        """
        n_left = self.prepared.max_tokens - self.n_written
        return max(0, min(OUTPUTS_PER_SLOT, n_left) - 1)

    @property
    def has_advanced(self) -> bool:
        """Whether it has advanced since its latest pause, so that each turn makes progress.

        A sequence that waits for the projector counts as advanced: encoding continues while
        it is paused.
        """
        waits = (span := self.span) is not None and span.chunk.vectors is None
        return self.n_cached > self.n_cached_at_pause or waits

    @property
    def is_prefilling(self) -> bool:
        """Whether its prompt is not decoded yet."""
        return self.n_cached < self._n_prompt

    @property
    def reports_progress(self) -> bool:
        """Whether prompt progress is reported; not while tokens are decoded again."""
        is_new = self.n_cached >= self.n_cached_at_pause
        return self.is_prefilling and self.job.wants_progress and is_new

    @property
    def is_plain(self) -> bool:
        """Whether its next row is one token whatever else runs: no grammar, nothing likely."""
        return (
            len(self.tokens) - self.n_cached == 1
            and not self.likely_tokens
            and not self.prepared.sampler.is_constrained
        )

    @property
    def n_unread(self) -> int:
        """Prompt tokens that are not decoded yet."""
        return max(0, self.prepared.prompt_tokens - self.n_cached)

    @property
    def position(self) -> int:
        """Position of the next token."""
        return position_of(self.n_cached, self.prepared.position_skips)

    @property
    def span(self) -> MediaSpan | None:
        """The media chunk that is decoded next; ``None`` if a text token is."""
        found = self._next_span
        return found if found and found.begin <= self.n_cached else None

    @property
    def n_next(self) -> int:
        """Known tokens that are not decoded yet, up to the next media chunk."""
        found = self._next_span
        return (found.begin if found else len(self.tokens)) - self.n_cached

    @property
    def _next_span(self) -> MediaSpan | None:
        for each in self.prepared.spans:
            if each.end > self.n_cached:
                return each
        return None

    def next_tokens(self, n_tokens: int) -> list[int]:
        """Return the next tokens to decode, at most ``n_tokens``."""
        return self.tokens[self.n_cached : self.n_cached + n_tokens]

    def is_finished_by(self, n_tokens: int) -> bool:
        """Tell whether decoding ``n_tokens`` more reaches the last known token."""
        return self.n_cached + n_tokens == len(self.tokens)
