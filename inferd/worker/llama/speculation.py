"""Guess what running answers say next, so that one batch checks several tokens."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import takewhile

from inferd.worker.llama.lookup import Lookup
from inferd.worker.llama.sequence import Sequence
from inferd.worker.llama.trust import Costs

__all__ = ["Drafter", "LookupDrafter", "Speculation"]


class Drafter(ABC):
    """A way of guessing. Only the thread that decodes calls it."""

    round_s = 0.0
    """Seconds that guessing one token for each sequence takes, if it takes any."""

    @abstractmethod
    def draft(self, wanted: Mapping[Sequence, int]) -> Mapping[Sequence, list[int]]:
        """Guess what follows the tokens and drafts of each sequence.

        Args:
            wanted: for each sequence, how many tokens at most; at least one.

        Returns:
            No more than that for each; sequences may be missing.
        """

    @abstractmethod
    def drop(self, ticket: int) -> None:
        """Forget a job, if it is known."""

    @abstractmethod
    def use_threads(self, n_threads: int) -> None:
        """Compute with this many threads from now on."""


class LookupDrafter(Drafter):
    """Guesses what a sequence itself had after the same tokens before."""

    def __init__(self) -> None:
        self._lookups: dict[int, Lookup] = {}

    def draft(self, wanted: Mapping[Sequence, int]) -> Mapping[Sequence, list[int]]:
        """Look for the last tokens of each sequence earlier in it."""
        return {each: self._guess(each, n) for each, n in wanted.items()}

    def _guess(self, sequence: Sequence, n_tokens: int) -> list[int]:
        lookup = self._lookups.setdefault(sequence.ticket, Lookup())
        lookup.extend(sequence.tokens[len(lookup) :])
        guessed = lookup.guess(n_tokens, sequence.drafts)
        return list(takewhile(_is_token, guessed))

    def drop(self, ticket: int) -> None:
        """Forget a job's tokens."""
        self._lookups.pop(ticket, None)

    def use_threads(self, n_threads: int) -> None:
        """Do nothing: a lookup takes microseconds."""


def _is_token(token: int) -> bool:
    """Tell tokens from those that were made up for media."""
    return token >= 0


class Speculation:
    """Has a drafter guess as much as is worth while.

    What is guessed is decoded behind what is certain, and a token is chosen at each place
    as if it stood alone, so a guess costs time and changes no choice.

    Args:
        drafter: that guesses.
        draft_max: tokens of one answer that are guessed at once.
    """

    def __init__(self, drafter: Drafter, draft_max: int) -> None:
        self._drafter = drafter
        self._draft_max = draft_max
        self._costs = Costs()

    def guess(self, streams: list[Sequence]) -> None:
        """Set what is guessed of each answer."""
        wanted: dict[Sequence, int] = {}
        for each in streams:
            each.guesses = []
            if n := self._n_wanted(each, len(streams)):
                wanted[each] = n
        if not wanted:
            return
        for each, tokens in self._drafter.draft(wanted).items():
            each.guesses = tokens
        self._costs.round_s = self._drafter.round_s

    def observe_batch(self, n_tokens: int, seconds: float) -> None:
        """Take note of how long a batch without prompts took."""
        self._costs.observe(n_tokens, seconds)

    def drop(self, ticket: int) -> None:
        """Forget a job, if it is known."""
        self._drafter.drop(ticket)

    def use_threads(self, n_threads: int) -> None:
        """Compute with this many threads from now on."""
        self._drafter.use_threads(n_threads)

    def _n_wanted(self, sequence: Sequence, n_streams: int) -> int:
        room = sequence.n_draftable - len(sequence.drafts)
        at_most = min(self._draft_max, room)
        return sequence.trust.n_guesses(
            self._costs, n_streams=n_streams, at_most=max(0, at_most)
        )
