"""A job that writes: its prompt, and what it has written so far."""

from inferd.job import GenerateJob
from inferd.worker.backend import PreparedJob
from inferd.worker.limits import OUTPUTS_PER_SLOT
from inferd.worker.llama.sampling import Sampler
from inferd.worker.llama.trust import Trust


class PreparedPrompt(PreparedJob):
    """A tokenised prompt, and the sampler that waits for it."""

    def __init__(
        self,
        tokens: list[int],
        job: GenerateJob,
        max_tokens: int,
        sampler: Sampler,
        *,
        open_thought: str = "",
    ) -> None:
        self.tokens = tokens
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
    def is_prefilling(self) -> bool:
        """Whether its prompt is not decoded yet."""
        return self.n_cached < self.prepared.prompt_tokens

    @property
    def n_unread(self) -> int:
        """Tokens of its prompt that are not decoded yet."""
        return max(0, self.prepared.prompt_tokens - self.n_cached)

    def next_tokens(self, n_tokens: int) -> list[int]:
        """Give the next tokens to decode, at most so many."""
        return self.tokens[self.n_cached : self.n_cached + n_tokens]

    def is_through_with(self, n_tokens: int) -> bool:
        """Tell whether the next tokens, so many, are all that there are."""
        return self.n_cached + n_tokens == len(self.tokens)
