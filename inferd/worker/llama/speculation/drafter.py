"""Draft tokens of running answers, so that one batch verifies several of them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import takewhile

from inferd.worker.llama.generate.sequence import RunningSequence
from inferd.worker.llama.speculation.acceptance import BatchCosts
from inferd.worker.llama.speculation.lookup import TokenLookup

__all__ = ["Drafter", "LookupDrafter", "Speculation"]


class Drafter(ABC):
    """Interface of a source of drafts. Only the decoding thread calls it."""

    draft_round_s = 0.0
    """Seconds for drafting one token for each sequence."""

    @abstractmethod
    def draft(
        self, wanted: Mapping[RunningSequence, int]
    ) -> Mapping[RunningSequence, list[int]]:
        """Draft tokens after the known and likely tokens of each sequence.

        Args:
            wanted: most tokens to draft by sequence, at least 1.

        Returns:
            At most that many for each sequence; sequences may be missing.
        """

    @abstractmethod
    def drop(self, ticket: int) -> None:
        """Remove a job, if it is known."""

    @abstractmethod
    def use_threads(self, n_threads: int) -> None:
        """Compute with this many threads from now on."""


class LookupDrafter(Drafter):
    """Drafter that repeats what followed the same tokens earlier in the sequence."""

    def __init__(self) -> None:
        self._lookups: dict[int, TokenLookup] = {}

    def draft(
        self, wanted: Mapping[RunningSequence, int]
    ) -> Mapping[RunningSequence, list[int]]:
        """Search each sequence for an earlier occurrence of its last tokens."""
        return {each: self._predict(each, n) for each, n in wanted.items()}

    def _predict(self, sequence: RunningSequence, n_tokens: int) -> list[int]:
        lookup = self._lookups.setdefault(sequence.ticket, TokenLookup())
        lookup.extend(sequence.tokens[len(lookup) :])
        predicted = lookup.predict(n_tokens, sequence.likely_tokens)
        return list(takewhile(_is_token, predicted))

    def drop(self, ticket: int) -> None:
        """Remove a job's tokens."""
        self._lookups.pop(ticket, None)

    def use_threads(self, n_threads: int) -> None:
        """Do nothing: a lookup takes microseconds."""


def _is_token(token: int) -> bool:
    """Tell tokens from placeholders for media."""
    return token >= 0


class Speculation:
    """Speculative decoding: asks a drafter for as many tokens as are expected to save time.

    Drafts are decoded after the known tokens, and a token is sampled at each position as
    without speculation, so drafts cost time but change no answer.

    Args:
        drafter: the source of drafts.
        draft_max: most tokens drafted per answer and step.
    """

    def __init__(self, drafter: Drafter, draft_max: int) -> None:
        self._drafter = drafter
        self._draft_max = draft_max
        self._costs = BatchCosts()

    def draft(self, streams: list[RunningSequence]) -> None:
        """Set ``drafted_tokens`` of each answer."""
        wanted: dict[RunningSequence, int] = {}
        for each in streams:
            each.drafted_tokens = []
            if n := self._n_wanted(each, len(streams)):
                wanted[each] = n
        if not wanted:
            return
        for each, tokens in self._drafter.draft(wanted).items():
            each.drafted_tokens = tokens
        self._costs.draft_round_s = self._drafter.draft_round_s

    def observe_batch(self, n_tokens: int, seconds: float) -> None:
        """Record how long a batch without prompt tokens took."""
        self._costs.observe(n_tokens, seconds)

    def drop(self, ticket: int) -> None:
        """Remove a job, if it is known."""
        self._drafter.drop(ticket)

    def use_threads(self, n_threads: int) -> None:
        """Compute with this many threads from now on."""
        self._drafter.use_threads(n_threads)

    def _n_wanted(self, sequence: RunningSequence, n_streams: int) -> int:
        room = sequence.n_draftable - len(sequence.likely_tokens)
        at_most = min(self._draft_max, room)
        return sequence.acceptance.n_drafts(
            self._costs, n_streams=n_streams, at_most=max(0, at_most)
        )
