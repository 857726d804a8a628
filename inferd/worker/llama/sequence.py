"""A job that writes: its prompt, and what it has written so far."""

from typing import Final

from inferd.job import GenerateJob
from inferd.worker.backend import PreparedJob
from inferd.worker.limits import OUTPUTS_PER_SLOT
from inferd.worker.llama.prefixes import position_of
from inferd.worker.llama.sampling import Sampler
from inferd.worker.llama.spans import Seen, Span
from inferd.worker.llama.trust import Trust


class PreparedPrompt(PreparedJob):
    """A tokenised prompt, and the sampler that waits for it."""

    def __init__(  # noqa: PLR0913  # all that a prompt has
        self,
        tokens: list[int],
        job: GenerateJob,
        max_tokens: int,
        sampler: Sampler,
        *,
        open_thought: str = "",
        media: tuple[Seen, ...] = (),
        spans: tuple[Span, ...] = (),
    ) -> None:
        self.tokens = tokens
        """Of the prompt; negative ones where media stand."""
        self.media = media
        self.spans = spans
        """Where parts of the media are, in their order."""
        self.skips = tuple(
            (each.end, each.clip.n_tokens - each.clip.n_positions)
            for each in spans
            if each.clip.n_tokens > each.clip.n_positions
        )
        """Behind how many tokens there are how many positions fewer than tokens."""
        self.job = job
        self.max_tokens = max_tokens
        """Tokens the answer may have, by request and by context."""
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
        """Tell whether it can be read from there: not amid what is read at once."""
        return not any(
            each.clip.is_whole and each.begin < n_tokens < each.end
            for each in self.spans
        )


NEVER: Final = -1


class Sequence:
    """A running job: its prompt, and what it has written."""

    def __init__(
        self, ticket: int, slot: int, prepared: PreparedPrompt, *, n_reused: int = 0
    ) -> None:
        self.ticket = ticket
        self.slot = slot
        self.prepared = prepared
        self.tokens = list(prepared.tokens)
        self.n_reused = n_reused
        """Tokens of the prompt that were in the cache before."""
        self.n_cached = n_reused
        """Tokens in the KV cache, of the prompt first."""
        self.drafts: list[int] = []
        """Tokens that are likely to come next, decoded along with those that have come."""
        self.guesses: list[int] = []
        """Tokens that may come after them, decoded along as well."""
        self.trust = Trust()
        self.n_before = NEVER
        """Tokens that it had in the cache when it was paused last."""

    @property
    def job(self) -> GenerateJob:
        """What was asked."""
        return self.prepared.job

    @property
    def n_written(self) -> int:
        """Tokens of the answer."""
        return len(self.tokens) - self.prepared.prompt_tokens

    @property
    def n_draftable(self) -> int:
        """Tokens that a batch may have beyond those that have come, likely or guessed.

        After each of them one more may be chosen. More than are left to write would have
        no cells, and more than llama.cpp gives scores for would end the process.
        """
        n_left = self.prepared.max_tokens - self.n_written
        return max(0, min(OUTPUTS_PER_SLOT, n_left) - 1)

    @property
    def is_further(self) -> bool:
        """Whether it has got on since it was paused last, so that no pause is in vain.

        What has to be waited for otherwise, a medium to be made readable, goes on all the
        same.
        """
        waits = (span := self.span) is not None and span.clip.vectors is None
        return self.n_cached > self.n_before or waits

    @property
    def is_prefilling(self) -> bool:
        """Whether its prompt is not decoded yet."""
        return self.n_cached < self.prepared.prompt_tokens

    @property
    def tells_progress(self) -> bool:
        """Whether it is to be told how far its prompt is; not what is read again."""
        is_new = self.n_cached >= self.n_before
        return self.is_prefilling and self.job.wants_progress and is_new

    @property
    def n_unread(self) -> int:
        """Tokens of its prompt that are not decoded yet."""
        return max(0, self.prepared.prompt_tokens - self.n_cached)

    @property
    def position(self) -> int:
        """Where the next token is."""
        return position_of(self.n_cached, self.prepared.skips)

    @property
    def span(self) -> Span | None:
        """Where it is in a medium, which is read apart; nothing if it is in a text."""
        found = self._next_span
        return found if found and found.begin <= self.n_cached else None

    @property
    def n_next(self) -> int:
        """Tokens that come next, up to a medium."""
        found = self._next_span
        return (found.begin if found else len(self.tokens)) - self.n_cached

    @property
    def _next_span(self) -> Span | None:
        for each in self.prepared.spans:
            if each.end > self.n_cached:
                return each
        return None

    def next_tokens(self, n_tokens: int) -> list[int]:
        """Give the next tokens to decode, at most so many."""
        return self.tokens[self.n_cached : self.n_cached + n_tokens]

    def is_through_with(self, n_tokens: int) -> bool:
        """Tell whether the next tokens, so many, are all that there are."""
        return self.n_cached + n_tokens == len(self.tokens)
