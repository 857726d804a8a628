"""What is kept of sequences that have ended, and which of it a prompt begins like."""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferd.job import NOBODY

__all__ = ["Bytes", "Kept", "Prefixes", "Tokens", "n_common", "position_of"]

Tokens = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class Kept:
    """A sequence whose tokens need not be decoded again."""

    owner: int
    """The user whose text it is."""
    tokens: Tokens
    first: int = 0
    """The first position that all layers still have: over 0 where a window slides, and
    the last one where there is but a state."""
    slot: int | None = None
    """Where it is in the KV cache."""
    saved: Bytes | None = None
    """Its state in host memory, where it is not in the KV cache."""
    skips: tuple[tuple[int, int], ...] = ()
    """Behind how many tokens there are how many positions fewer than tokens."""
    worth: tuple[float, int] = (0.0, 0)
    """Who has least of it goes first."""

    @property
    def n_bytes(self) -> int:
        """Host memory that it takes."""
        return 0 if self.saved is None else self.saved.nbytes

    def position(self, n_tokens: int) -> int:
        """Tell where the token behind so many is."""
        return position_of(n_tokens, self.skips)


class Prefixes:
    """All that is kept of one model.

    Evicts by GreedyDual-Size: what took long to compute and takes little memory stays
    longest, and of equals what was used last. Only users who hold more than an even
    share of host memory lose anything.

    Args:
        window: tokens that a token sees in layers that slide; 0 where none do.
        max_saved_bytes: of host memory.
        n_tokens_min: fewer that are common are not worth finding.

    Laws (held by property tests): nobody finds what another user left; what is found
    begins like the prompt for as long as is said, and can be cut there; host memory is
    never over its bound; nobody loses an even share of it to others.
    """

    def __init__(
        self, *, window: int, max_saved_bytes: int, n_tokens_min: int = 1
    ) -> None:
        self._window = window
        self._max_saved_bytes = max_saved_bytes
        self._n_tokens_min = n_tokens_min
        self._kept: list[Kept] = []
        self._turns = itertools.count(1)
        self._floor = 0.0

    @property
    def saved_bytes(self) -> int:
        """Host memory that all of it takes."""
        return sum(each.n_bytes for each in self._kept)

    @property
    def idle(self) -> list[Kept]:
        """What is in the KV cache; the first may go first."""
        in_cache = (each for each in self._kept if each.slot is not None)
        return sorted(in_cache, key=lambda each: each.worth)

    def find(
        self, owner: int, prompt: Tokens, running: Iterable[Kept] = ()
    ) -> tuple[Kept | None, int]:
        """Find what a prompt of this user begins like for the longest.

        Args:
            owner: the user.
            prompt: ``(n_tokens,)``.
            running: sequences that have not ended.

        Returns:
            That, and for how many tokens: none where it cannot be cut there.
        """
        best: Kept | None = None
        best_n = 0
        best_rank = (0, 0, False, 0)
        for kept in (*self._kept, *running):
            if kept.owner != owner:
                continue
            n = n_common(kept.tokens, prompt)
            n_usable = n if self.can_cut(kept, n) else 0
            # Between equals, one that need not be fetched; of these, what moves soonest.
            rank = (n_usable, n, kept.saved is None, -len(kept.tokens))
            if n >= self._n_tokens_min and (best is None or rank > best_rank):
                best, best_n, best_rank = kept, n_usable, rank
        return best, best_n

    def add(self, kept: Kept) -> list[Kept]:
        """Keep a sequence; give what that makes superfluous, which is kept no longer."""
        superfluous = [each for each in self._kept if self._covers(kept, each)]
        for each in superfluous:
            self.remove(each)
        self._kept.append(kept)
        self.refresh(kept)
        return superfluous

    def remove(self, kept: Kept) -> None:
        """Keep it no longer, if it was kept still."""
        if kept in self._kept:
            self._kept.remove(kept)

    def refresh(self, kept: Kept) -> None:
        """Note that it was of use."""
        n_tokens = len(kept.tokens)
        kept.worth = (
            self._floor + n_tokens / (kept.n_bytes or n_tokens or 1),
            next(self._turns),
        )

    def make_room(self, owner: int, n_bytes: int) -> bool:
        """Have what is worth least go until so many bytes more of a user fit.

        Returns:
            Whether they do: not if they are more than there may be, or than the user's
            share where others use theirs.
        """
        if n_bytes > self._max_saved_bytes:
            return False
        while self.saved_bytes + n_bytes > self._max_saved_bytes:
            if not (above := self._above_share(owner, n_bytes)):
                return False
            victim = min(above, key=lambda each: each.worth)
            self._floor = victim.worth[0]
            self.remove(victim)
        return True

    def save(self, kept: Kept, state: Bytes) -> None:
        """Note that it has moved to host memory, where room was made for it."""
        kept.slot, kept.saved = None, state
        self.refresh(kept)

    def _above_share(self, owner: int, n_bytes: int) -> list[Kept]:
        """Give what users have saved who would hold more than an even share."""
        saved = [each for each in self._kept if each.saved is not None]
        held = Counter({_sharer(owner): n_bytes})
        for each in saved:
            held[_sharer(each.owner)] += each.n_bytes
        share = self._max_saved_bytes / len(held)
        return [each for each in saved if held[_sharer(each.owner)] > share]

    def clear(self) -> None:
        """Keep nothing."""
        self._kept.clear()

    def _covers(self, kept: Kept, other: Kept) -> bool:
        """Tell whether whatever begins like the other can begin like this one as well."""
        n = len(other.tokens)
        return (
            kept.owner == other.owner
            and n_common(kept.tokens, other.tokens) == n
            and self.can_cut(kept, n)
        )

    def can_cut(self, kept: Kept, n: int) -> bool:
        """Tell whether what comes behind so many tokens can be taken away.

        The one before it has to be there at the least: a state alone is never cut.
        """
        seen = max(0, kept.position(n) - max(1, self._window))
        return n == len(kept.tokens) or kept.first <= seen


def _sharer(owner: int) -> int:
    """Tell whose share something is in: who is below ``NOBODY`` has one with all others.

    These are strangers, and uids that count as one user: many shares would be theirs.
    """
    return max(owner, NOBODY)


def position_of(n_tokens: int, skips: Iterable[tuple[int, int]]) -> int:
    """Tell where the token behind so many is, where places of media share positions."""
    return n_tokens - sum(n for end, n in skips if end <= n_tokens)


def n_common(one: Tokens, other: Tokens) -> int:
    """Count the tokens that both begin with."""
    n = min(len(one), len(other))
    differ = one[:n] != other[:n]
    return int(differ.argmax()) if differ.any() else n
