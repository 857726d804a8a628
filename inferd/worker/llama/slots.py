"""Sequence numbers of a context: who runs in which, and what of earlier runs is kept."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from inferd.wire.responses import CacheMiss
from inferd.worker.limits import IDLE_TOKENS, KEPT_TOKENS_MIN
from inferd.worker.llama.context import Context
from inferd.worker.llama.prefixes import Bytes, Kept, Prefixes
from inferd.worker.llama.sequence import PreparedPrompt, Sequence

__all__ = ["Place", "Slots"]

_FETCHED_SHARE = 16
"""One token in so many of a saved sequence is to be of use, or it is not fetched: that
takes as long as decoding one token in a hundred of them, on the slowest machine seen."""


class Place(NamedTuple):
    """Where a sequence begins."""

    slot: int
    n_reused: int
    """Tokens of its prompt that are in the cache already."""
    miss: CacheMiss | None
    """Why there are none."""


class Slots:
    """The sequences of one context. Only the thread that decodes calls it.

    A sequence that ends stays in the KV cache, idle, until there are too many of them;
    then it moves to host memory. Idle cells are looked over for every token that
    anybody decodes, so there are not many.

    Args:
        context: with room for ``n_slots`` and those that idle.
        n_slots: sequences that run at once.
        max_saved_bytes: of host memory; ``None`` to keep nothing at all.
    """

    def __init__(
        self, context: Context, *, n_slots: int, max_saved_bytes: int | None
    ) -> None:
        self._context = context
        self._keeps = max_saved_bytes is not None
        self._max_saved_bytes = max_saved_bytes or 0
        self._prefixes = Prefixes(
            window=context.window, max_saved_bytes=self._max_saved_bytes
        )
        self._free = list(range(context.n_sequences))
        self._n_idle = context.n_sequences - n_slots

    @property
    def saved_bytes(self) -> int:
        """Host memory that saved sequences take."""
        return self._prefixes.saved_bytes

    def take(self, prepared: PreparedPrompt, running: Iterable[Sequence]) -> Place:
        """Give a prompt a slot, with as much of it as is known already."""
        job = prepared.job
        slot = self._free.pop()
        if job.cache == "off" or not self._keeps:
            return Place(slot, 0, "off")
        self._look_again()
        # The last token is decoded for its logits.
        prompt = np.array(prepared.tokens[:-1], np.int32)
        live = [self._kept(each) for each in running if each.job.owner == job.owner]
        found, n = self._prefixes.find(job.owner, prompt, live)
        if found is None:
            return Place(slot, 0, "no_prefix")
        if not n:
            return Place(slot, 0, "window" if self._context.window else "state")
        if found.saved is not None:
            return self._fetch(found, found.saved, n, slot)
        return self._share(found, n, slot)

    def _share(self, found: Kept, n: int, slot: int) -> Place:
        """Use what is in the KV cache: its own cells if it is all of use, else a copy."""
        assert found.slot is not None  # noqa: S101  # what is not saved is there
        if found in self._prefixes.idle and n == len(found.tokens):
            self._prefixes.remove(found)
            self._free.append(slot)
            return Place(found.slot, n, None)
        self._context.copy(found.slot, slot, n)
        self._prefixes.refresh(found)
        return Place(slot, n, None)

    def _fetch(self, found: Kept, state: Bytes, n: int, slot: int) -> Place:
        """Bring a saved sequence back."""
        if n * _FETCHED_SHARE < len(found.tokens):
            return Place(slot, 0, "no_prefix")
        while not self._context.restore(slot, state, len(found.tokens)):
            self._context.forget(slot)
            if not self.make_room():
                self._prefixes.remove(found)
                return Place(slot, 0, "lost")
        self._prefixes.refresh(found)
        if not self._context.forget(slot, after=n):
            self._context.forget(slot)
            return Place(slot, 0, "state")
        return Place(slot, n, None)

    def give_back(self, sequence: Sequence) -> None:
        """Take a slot back, and keep what is in it, unless that is not wanted."""
        kept = self._kept(sequence)
        is_wanted = self._keeps and sequence.job.cache == "auto"
        if not is_wanted or len(kept.tokens) < KEPT_TOKENS_MIN:
            self._release(sequence.slot)
            return
        for each in self._prefixes.add(kept):
            self._release(each.slot)
        while self._is_crowded():
            self.make_room()

    def make_room(self) -> bool:
        """Move the idle sequence that is worth least to host memory; false if none is."""
        if not (idle := self._prefixes.idle):
            return False
        kept = idle[0]
        assert kept.slot is not None  # noqa: S101  # it is idle
        slot = kept.slot
        if self._context.state_bytes(slot) > self._max_saved_bytes:
            self._prefixes.remove(kept)
        else:
            kept.first = self._first_saved(slot, len(kept.tokens))
            self._prefixes.save(kept, self._context.save(slot))
        self._release(slot)
        return True

    def clear(self) -> None:
        """Forget all that is kept: it may be spoilt."""
        self._free += [
            each.slot for each in self._prefixes.idle if each.slot is not None
        ]
        self._prefixes.clear()

    def _look_again(self) -> None:
        """Note what is left of idle sequences: cells before their window give way."""
        for each in self._prefixes.idle:
            assert each.slot is not None  # noqa: S101  # it is idle
            each.first = self._context.first_position(each.slot)

    def _first_saved(self, slot: int, n_tokens: int) -> int:
        """Tell the first position of a state: no cells before the window are in it."""
        first, window = self._context.first_position(slot), self._context.window
        return max(first, n_tokens - window) if window else first

    def _release(self, slot: int | None) -> None:
        """Drop the cells of a sequence, if it is in the KV cache, and free its number."""
        if slot is not None:
            self._context.forget(slot)
            self._free.append(slot)

    def _is_crowded(self) -> bool:
        idle = self._prefixes.idle
        n_tokens = sum(len(each.tokens) for each in idle)
        return len(idle) > self._n_idle or n_tokens > IDLE_TOKENS

    def _kept(self, sequence: Sequence) -> Kept:
        return Kept(
            owner=sequence.job.owner,
            tokens=np.array(sequence.tokens[: sequence.n_cached], np.int32),
            first=self._context.first_position(sequence.slot),
            slot=sequence.slot,
        )
