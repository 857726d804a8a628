"""Cache of ended sequences, searched for the longest prefix of a prompt."""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferd.backend.caller import sharer_of

__all__ = [
    "Bytes",
    "CachedPrefix",
    "PrefixCache",
    "Tokens",
    "common_length",
    "position_of",
]

Tokens = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True, eq=False)
class CachedPrefix:
    """A decoded sequence whose KV cache cells or state can be reused."""

    owner: int
    """The user whose text it is."""
    tokens: Tokens
    first: int = 0
    """The first position that all layers still hold: above 0 with a sliding window, and
    the last one for a recurrent state."""
    slot: int | None = None
    """Its slot, while it is in the KV cache."""
    saved: Bytes | None = None
    """Its state in host memory, if it is not in the KV cache."""
    position_skips: tuple[tuple[int, int], ...] = ()
    """Pairs ``(n_tokens, n)``: after ``n_tokens`` tokens, positions lag by ``n`` more."""
    priority: tuple[float, int] = (0.0, 0)
    """The lowest is evicted first."""

    @property
    def n_bytes(self) -> int:
        """Host memory of the saved state."""
        return 0 if self.saved is None else self.saved.nbytes

    def position(self, n_tokens: int) -> int:
        """Return the position of the token after the first ``n_tokens``."""
        return position_of(n_tokens, self.position_skips)


class PrefixCache:
    """Cached sequences of one model.

    Evicts by GreedyDual-Size: sequences that took long to compute and take little memory
    stay longest; among equals, the most recently used. Only users over an even share of
    host memory lose anything.

    Args:
        window: tokens that sliding-window layers attend to; 0 if there are none.
        max_saved_bytes: host memory for saved states.
        n_tokens_min: shorter common prefixes are ignored.

    Laws (held by property tests): no user finds another user's sequences; a found sequence
    has the returned number of tokens in common with the prompt and can be truncated there;
    host memory never exceeds its limit; no user loses any of an even share to others.
    """

    def __init__(
        self, *, window: int, max_saved_bytes: int, n_tokens_min: int = 1
    ) -> None:
        self._window = window
        self._max_saved_bytes = max_saved_bytes
        self._n_tokens_min = n_tokens_min
        self._cached: list[CachedPrefix] = []
        self._uses = itertools.count(1)
        self._floor = 0.0

    @property
    def saved_bytes(self) -> int:
        """Host memory of all saved states."""
        return sum(each.n_bytes for each in self._cached)

    @property
    def idle(self) -> list[CachedPrefix]:
        """Sequences in the KV cache, in the order of eviction."""
        in_cache = (each for each in self._cached if each.slot is not None)
        return sorted(in_cache, key=lambda each: each.priority)

    def find(
        self, owner: int, prompt: Tokens, running: Iterable[CachedPrefix] = ()
    ) -> tuple[CachedPrefix | None, int]:
        """Find the cached sequence with the longest common prefix.

        Args:
            owner: the user.
            prompt: ``(n_tokens,)``.
            running: sequences that have not ended.

        Returns:
            The sequence, and its common tokens: 0 if it cannot be truncated there.
        """
        best: CachedPrefix | None = None
        best_n = 0
        best_rank = (0, 0, False, 0)
        for prefix in (*self._cached, *running):
            if prefix.owner != owner:
                continue
            n = common_length(prefix.tokens, prompt)
            n_usable = n if self.can_truncate(prefix, n) else 0
            # Among equals, prefer one in the KV cache, then the shortest to copy.
            rank = (n_usable, n, prefix.saved is None, -len(prefix.tokens))
            if n >= self._n_tokens_min and (best is None or rank > best_rank):
                best, best_n, best_rank = prefix, n_usable, rank
        return best, best_n

    def add(self, prefix: CachedPrefix) -> list[CachedPrefix]:
        """Add a sequence; return those that it makes redundant, which are removed."""
        superfluous = [each for each in self._cached if self._covers(prefix, each)]
        for each in superfluous:
            self.remove(each)
        self._cached.append(prefix)
        self.refresh(prefix)
        return superfluous

    def remove(self, prefix: CachedPrefix) -> None:
        """Remove a sequence, if it is still there."""
        if prefix in self._cached:
            self._cached.remove(prefix)

    def refresh(self, prefix: CachedPrefix) -> None:
        """Raise a sequence's priority, because it was used."""
        n_tokens = len(prefix.tokens)
        prefix.priority = (
            self._floor + n_tokens / (prefix.n_bytes or n_tokens or 1),
            next(self._uses),
        )

    def make_room(self, owner: int, n_bytes: int) -> bool:
        """Evict by priority until ``n_bytes`` more of a user fit.

        Returns:
            Whether they fit: not if they exceed the limit, or the user's share while
            other users fill theirs.
        """
        if n_bytes > self._max_saved_bytes:
            return False
        while self.saved_bytes + n_bytes > self._max_saved_bytes:
            if not (above := self._above_share(owner, n_bytes)):
                return False
            victim = min(above, key=lambda each: each.priority)
            self._floor = victim.priority[0]
            self.remove(victim)
        return True

    def save(self, prefix: CachedPrefix, state: Bytes) -> None:
        """Record a move to host memory, after ``make_room`` for it."""
        prefix.slot, prefix.saved = None, state
        self.refresh(prefix)

    def _above_share(self, owner: int, n_bytes: int) -> list[CachedPrefix]:
        """Return saved sequences of owners who would exceed an even share.

        Users have equal shares, as ``sharer_of`` says who that is; owners who use a share
        together have equal parts of it.
        """
        saved = [each for each in self._cached if each.saved is not None]
        held = Counter({owner: n_bytes})
        for each in saved:
            held[each.owner] += each.n_bytes
        of_sharers: Counter[int] = Counter()
        for each_owner, n in held.items():
            of_sharers[sharer_of(each_owner)] += n
        n_owners = Counter(map(sharer_of, held))
        share = self._max_saved_bytes / len(of_sharers)
        return [
            each
            for each in saved
            if of_sharers[sharer := sharer_of(each.owner)] > share
            and held[each.owner] > share / n_owners[sharer]
        ]

    def clear(self) -> None:
        """Remove all sequences."""
        self._cached.clear()

    def _covers(self, prefix: CachedPrefix, other: CachedPrefix) -> bool:
        """Tell whether every prompt that could use ``other`` can use this one as well."""
        n = len(other.tokens)
        return (
            prefix.owner == other.owner
            and common_length(prefix.tokens, other.tokens) == n
            and self.can_truncate(prefix, n)
        )

    def can_truncate(self, prefix: CachedPrefix, n: int) -> bool:
        """Tell whether a sequence can be truncated to its first ``n`` tokens.

        At least the cell before them must be there: a recurrent state is never truncated.
        """
        first_needed = max(0, prefix.position(n) - max(1, self._window))
        return n == len(prefix.tokens) or prefix.first <= first_needed


def position_of(n_tokens: int, skips: Iterable[tuple[int, int]]) -> int:
    """Return the position after ``n_tokens`` tokens; tokens of an image share positions."""
    return n_tokens - sum(n for end, n in skips if end <= n_tokens)


def common_length(one: Tokens, other: Tokens) -> int:
    """Count the tokens of the common prefix."""
    n = min(len(one), len(other))
    differ = one[:n] != other[:n]
    return int(differ.argmax()) if differ.any() else n
