"""Slots of a context: who runs in which, and what of earlier runs is kept."""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from inferd.wire.responses import CacheMiss
from inferd.worker.limits import KEPT_TOKENS_MIN
from inferd.worker.llama.context import Context
from inferd.worker.llama.pauses import Pauses
from inferd.worker.llama.prefixes import Bytes, Kept, Prefixes
from inferd.worker.llama.sequence import PreparedPrompt, Sequence

__all__ = ["Place", "Slots", "n_runs"]

_FETCHED_SHARE = 16
"""One token in so many of a sequence is to be of use, or it is not moved for them: a copy
takes as long as decoding one token in a hundred of it, on the slowest machine seen."""


class Place(NamedTuple):
    """Where a sequence begins."""

    slot: int
    n_reused: int
    """Tokens of its prompt that are in the cache already."""
    miss: CacheMiss | None
    """Why there are none."""


class Slots:
    """The slots of one context. Only the thread that decodes calls it.

    A sequence that ends stays in its slot, idle, until somebody else runs there; then it
    moves to host memory. Slots side by side are decoded in one go, others one after
    another, so whoever begins does so beside those who run.

    Args:
        context: in which each slot has cells of its own.
        max_saved_bytes: of host memory; ``None`` to keep nothing at all.
        max_paused_bytes: of host memory for the states of paused sequences.

    Bounds:
        Host memory: ``max_saved_bytes``, with what is copied from slot to slot; and while
        it comes back, a state that had to go for what was in its slot. Beside that
        ``max_paused_bytes``.
    """

    def __init__(
        self,
        context: Context,
        *,
        max_saved_bytes: int | None,
        max_paused_bytes: int = 0,
    ) -> None:
        self._context = context
        self._pauses = Pauses(max_paused_bytes)
        self._keeps = max_saved_bytes is not None
        self._prefixes = Prefixes(
            window=context.window,
            max_saved_bytes=max_saved_bytes or 0,
            n_tokens_min=KEPT_TOKENS_MIN,
        )

    @property
    def saved_bytes(self) -> int:
        """Host memory that saved sequences take."""
        return self._prefixes.saved_bytes

    def take(self, prepared: PreparedPrompt, running: Collection[Sequence]) -> Place:
        """Give a prompt a slot, with as much of it as is known already.

        Args:
            prepared: the prompt.
            running: all that run, one less than there are slots at most.
        """
        job = prepared.job
        busy = {each.slot for each in running}
        if job.cache == "off" or not self._keeps:
            return self._begin(busy, "off")
        # The last token is decoded for its logits.
        prompt = np.array(prepared.tokens[:-1], np.int32)
        live = [
            self._as_copied(self._kept(each))
            for each in running
            if each.job.owner == job.owner
        ]
        found, n = self._prefixes.find(job.owner, prompt, live)
        if found is None or not prepared.can_begin_at(n):
            return self._begin(busy, "no_prefix")
        if not n:
            return self._begin(busy, "window" if self._context.window else "state")
        return self._go_on(found, n, busy)

    def give_back(self, sequence: Sequence) -> None:
        """Take a slot back, and keep what is in it, unless that is not wanted."""
        kept = self._kept(sequence)
        is_wanted = self._keeps and sequence.job.cache == "auto"
        if not is_wanted or len(kept.tokens) < KEPT_TOKENS_MIN:
            self._context.forget(sequence.slot)
            return
        for each in self._prefixes.add(kept):
            if each.slot is not None:
                self._context.forget(each.slot)

    def clear(self) -> None:
        """Forget all that is kept: it may be spoilt."""
        self._prefixes.clear()
        self._pauses.forget_states()

    # --- pauses ---------------------------------------------------------------------

    def pause(self, sequence: Sequence) -> None:
        """Take the slot of one that stands still, with its state if there is room for it.

        Nobody else finds it: it is no prefix, whatever its job says of the cache.
        """
        state: Bytes | None = None
        if sequence.n_cached:
            n_bytes = self._context.state_bytes(sequence.slot)
            if self._pauses.has_room(sequence.job.owner, n_bytes):
                state = self._context.save(sequence.slot)
        sequence.n_before = sequence.n_cached
        self._pauses.put(sequence, state)
        self._context.forget(sequence.slot)

    def resume(self, ticket: int, running: Collection[Sequence]) -> Sequence | None:
        """Give one that was paused a slot, and what it had there or nothing.

        Args:
            ticket: of one that may have been dropped.
            running: all that run, one less than there are slots at most.
        """
        if (found := self._pauses.take(ticket)) is None:
            return None
        sequence, state = found
        sequence.slot = self._choose({each.slot for each in running})
        self._empty(sequence.slot)
        if state is None or not self._context.restore(
            sequence.slot, state, sequence.position
        ):
            self._context.forget(sequence.slot)
            sequence.n_cached = 0
        return sequence

    def drop(self, ticket: int) -> bool:
        """Forget one that is paused; tell whether it was."""
        return self._pauses.take(ticket) is not None

    # --- where ----------------------------------------------------------------------

    def _choose(self, busy: Collection[int], wanted: int | None = None) -> int:
        """Choose a slot beside those who run; the one wanted, or what is worth least."""
        idle = {each.slot: rank for rank, each in enumerate(self._prefixes.idle)}
        free = (each for each in range(self._context.n_sequences) if each not in busy)
        return min(
            free,
            key=lambda slot: (
                n_runs({*busy, slot}),
                slot != wanted,
                idle.get(slot, -1),
                slot,
            ),
        )

    def _begin(self, busy: Collection[int], miss: CacheMiss) -> Place:
        """Have a prompt read from its first token."""
        slot = self._choose(busy)
        self._empty(slot)
        return Place(slot, 0, miss)

    def _go_on(self, found: Kept, n: int, busy: Collection[int]) -> Place:
        """Begin behind what is known: in its own slot, or in one that it is copied to."""
        own = None if found.slot in busy else found.slot
        slot = self._choose(busy, own if _is_worth_moving(found, n) else None)
        if own is None or (slot != own and self._can_move(found, n)):
            return self._copy(found, n, slot)
        if len(found.tokens) - n >= KEPT_TOKENS_MIN:
            self._save(found)
        else:
            self._prefixes.remove(found)
        return self._cut(own, found, n)

    # --- copies ---------------------------------------------------------------------

    def _copy(self, found: Kept, n: int, slot: int) -> Place:
        """Copy what is known into a slot."""
        self._empty(slot)  # first: room is made for one state at a time
        if not _is_worth_moving(found, n):
            return Place(slot, 0, "no_prefix")
        state = found.saved if found.saved is not None else self._state_of(found)
        if state is None:
            return Place(slot, 0, "no_room")
        if not self._context.restore(slot, state, found.position(len(found.tokens))):
            self._context.forget(slot)
            self._prefixes.remove(found)
            return Place(slot, 0, "lost")
        self._prefixes.refresh(found)
        return self._cut(slot, found, n)

    def _cut(self, slot: int, found: Kept, n: int) -> Place:
        """Drop what comes behind so many tokens of what is there."""
        if self._context.forget(slot, after=found.position(n)):
            return Place(slot, n, None)
        self._context.forget(slot)
        return Place(slot, 0, "state")

    def _empty(self, slot: int) -> None:
        """Drop what is in a slot; if it is kept, it moves to host memory."""
        for each in self._prefixes.idle:
            if each.slot == slot:
                self._save(each)
        self._context.forget(slot)

    def _save(self, kept: Kept) -> None:
        """Move an idle sequence to host memory, or forget it if that has no room."""
        kept.first = self._as_copied(kept).first
        if (state := self._state_of(kept)) is None:
            self._prefixes.remove(kept)
        else:
            self._prefixes.save(kept, state)

    def _state_of(self, kept: Kept) -> Bytes | None:
        """Copy a sequence's state out, if host memory has room for it."""
        assert kept.slot is not None  # noqa: S101  # what is not saved is in one
        n_bytes = self._context.state_bytes(kept.slot)
        if not self._prefixes.make_room(kept.owner, n_bytes):
            return None
        return self._context.save(kept.slot)

    def _can_move(self, kept: Kept, n: int) -> bool:
        """Tell whether a copy could be cut behind so many tokens."""
        return self._prefixes.can_cut(self._as_copied(kept), n)

    def _as_copied(self, kept: Kept) -> Kept:
        """Give what is left of a sequence in a copy: no cells before its window."""
        assert kept.slot is not None  # noqa: S101  # what is not saved is in one
        first, window = self._context.first_position(kept.slot), self._context.window
        end = kept.position(len(kept.tokens))
        return replace(kept, first=max(first, end - window) if window else first)

    def _kept(self, sequence: Sequence) -> Kept:
        return Kept(
            owner=sequence.job.owner,
            tokens=np.array(sequence.tokens[: sequence.n_cached], np.int32),
            first=self._context.first_position(sequence.slot),
            slot=sequence.slot,
            skips=sequence.prepared.skips,
        )


def _is_worth_moving(kept: Kept, n: int) -> bool:
    return n * _FETCHED_SHARE >= len(kept.tokens)


def n_runs(slots: Collection[int]) -> int:
    """Count the runs of slots that are side by side."""
    return sum(slot - 1 not in slots for slot in slots)
