"""Slots of a context: assignment to sequences, and reuse of cached prefixes."""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from inferd.backend.interface import CacheReuse
from inferd.limits.worker import CACHED_PREFIX_TOKENS_MIN
from inferd.wire.responses import CacheMiss
from inferd.worker.llama.generate.paused_states import PausedStates
from inferd.worker.llama.generate.prefix_cache import Bytes, CachedPrefix, PrefixCache
from inferd.worker.llama.generate.sequence import PreparedPrompt, RunningSequence
from inferd.worker.llama.model.context import LlamaContext

__all__ = ["SlotAssignment", "Slots", "n_contiguous_runs"]

_MAX_COPIED_PER_REUSED = 16
"""A sequence is copied only if at least one token in this many is reused. A copy takes as
long as decoding a hundredth of its tokens, on the slowest machine measured."""


class SlotAssignment(NamedTuple):
    """The slot of a starting sequence, and its reused prefix."""

    slot: int
    n_reused: int
    """Prompt tokens that are already in the slot's cells."""
    miss: CacheMiss | None
    """Why no token is reused; ``None`` if some are."""


class Slots:
    """The slots of one context. Only the decoding thread calls it.

    An ended sequence stays in its slot, idle, until another one needs the slot; then its
    state moves to host memory. Adjacent slots are decoded together, others one after
    another, so a starting sequence gets a slot adjacent to running ones.

    Args:
        context: a context in which each slot has its own cells.
        max_saved_bytes: host memory for cached prefixes; ``None`` disables the cache.
        paused_bytes: host memory for states of paused sequences.

    Bounds:
        Host memory: ``max_saved_bytes``, including copies between slots, and for the time
        of a restore one state that was evicted for its slot's previous content. Plus
        ``paused_bytes``.
    """

    def __init__(
        self,
        context: LlamaContext,
        *,
        max_saved_bytes: int | None,
        paused_bytes: int = 0,
    ) -> None:
        self._context = context
        self._paused_states = PausedStates(paused_bytes)
        self._keeps = max_saved_bytes is not None
        self._prefixes = PrefixCache(
            window=context.window,
            max_saved_bytes=max_saved_bytes or 0,
            n_tokens_min=CACHED_PREFIX_TOKENS_MIN,
        )

    @property
    def saved_bytes(self) -> int:
        """Host memory that saved sequences take."""
        return self._prefixes.saved_bytes

    def assign(
        self, prepared: PreparedPrompt, running: Collection[RunningSequence]
    ) -> SlotAssignment:
        """Assign a slot to a prompt, and reuse its longest cached prefix.

        Args:
            prepared: the prompt.
            running: all running sequences; at least one slot is free.
        """
        job = prepared.job
        busy = {each.slot for each in running}
        if job.cache == "off" or not self._keeps:
            return self._start_empty(busy, "off")
        # The last token is decoded for its logits.
        prompt = np.array(prepared.tokens[:-1], np.int32)
        live = [
            self._as_copied(self._prefix_of(each))
            for each in running
            if each.job.owner == job.owner
        ]
        found, n = self._prefixes.find(job.owner, prompt, live)
        if found is None or not prepared.can_begin_at(n):
            return self._start_empty(busy, "no_prefix")
        if not n:
            return self._start_empty(
                busy, "window" if self._context.window else "state"
            )
        return self._continue_from(found, n, busy)

    def reuse(self, assignment: SlotAssignment) -> CacheReuse:
        """Return the cache report for a starting sequence."""
        return CacheReuse(
            cached_tokens=assignment.n_reused,
            miss=assignment.miss,
            saved_bytes=self.saved_bytes,
        )

    def release(self, sequence: RunningSequence) -> None:
        """Free the slot of an ended sequence, which stays cached if its job allows that."""
        prefix = self._prefix_of(sequence)
        is_wanted = self._keeps and sequence.job.cache == "auto"
        if not is_wanted or len(prefix.tokens) < CACHED_PREFIX_TOKENS_MIN:
            self._context.remove_cells(sequence.slot)
            return
        for each in self._prefixes.add(prefix):
            if each.slot is not None:
                self._context.remove_cells(each.slot)

    def clear(self) -> None:
        """Remove all cached prefixes and saved states: they may contain NaN."""
        self._prefixes.clear()
        self._paused_states.forget_states()

    # --- pauses ---------------------------------------------------------------------

    def pause(self, sequence: RunningSequence) -> None:
        """Free the slot of a paused sequence, and save its state if there is memory for it.

        The state is not a cached prefix, whatever the job's ``cache``: no other job finds it.
        """
        state: Bytes | None = None
        if sequence.n_cached:
            n_bytes = self._context.state_bytes(sequence.slot)
            if self._paused_states.make_room(sequence.job.owner, n_bytes):
                state = self._context.save(sequence.slot)
        sequence.n_cached_at_pause = sequence.n_cached
        self._paused_states.put(sequence, state)
        self._context.remove_cells(sequence.slot)

    def resume(
        self, ticket: int, running: Collection[RunningSequence]
    ) -> RunningSequence | None:
        """Assign a slot to a paused sequence, and restore its state if it was saved.

        Args:
            ticket: of a sequence that may have been dropped.
            running: all running sequences; at least one slot is free.
        """
        if (found := self._paused_states.take(ticket)) is None:
            return None
        sequence, state = found
        sequence.slot = self._choose({each.slot for each in running})
        self._empty(sequence.slot)
        if state is None or not self._context.restore(
            sequence.slot, state, sequence.position
        ):
            self._context.remove_cells(sequence.slot)
            sequence.n_cached = 0
        return sequence

    def drop(self, ticket: int) -> bool:
        """Remove a paused sequence; false if there was none."""
        return self._paused_states.take(ticket) is not None

    # --- where ----------------------------------------------------------------------

    def _choose(self, busy: Collection[int], wanted: int | None = None) -> int:
        """Choose a free slot: adjacent to busy ones, then ``wanted``, then by eviction order."""
        idle = {each.slot: rank for rank, each in enumerate(self._prefixes.idle)}
        free = (each for each in range(self._context.n_sequences) if each not in busy)
        return min(
            free,
            key=lambda slot: (
                n_contiguous_runs({*busy, slot}),
                slot != wanted,
                idle.get(slot, -1),
                slot,
            ),
        )

    def _start_empty(self, busy: Collection[int], miss: CacheMiss) -> SlotAssignment:
        """Assign an empty slot, so that the prompt is decoded from its first token."""
        slot = self._choose(busy)
        self._empty(slot)
        return SlotAssignment(slot, 0, miss)

    def _continue_from(
        self, found: CachedPrefix, n: int, busy: Collection[int]
    ) -> SlotAssignment:
        """Continue a cached prefix in its own slot, or in one that it is copied to."""
        own = None if found.slot in busy else found.slot
        slot = self._choose(busy, own if _is_worth_copying(found, n) else None)
        if own is None or (slot != own and self._can_copy(found, n)):
            return self._copy(found, n, slot)
        if len(found.tokens) - n >= CACHED_PREFIX_TOKENS_MIN:
            self._save(found)
        else:
            self._prefixes.remove(found)
        return self._truncate(own, found, n)

    # --- copies ---------------------------------------------------------------------

    def _copy(self, found: CachedPrefix, n: int, slot: int) -> SlotAssignment:
        """Copy a cached prefix into a slot."""
        self._empty(slot)  # first: memory is reserved for one state at a time
        if not _is_worth_copying(found, n):
            return SlotAssignment(slot, 0, "no_prefix")
        state = found.saved if found.saved is not None else self._state_of(found)
        if state is None:
            return SlotAssignment(slot, 0, "no_room")
        if not self._context.restore(slot, state, found.position(len(found.tokens))):
            self._context.remove_cells(slot)
            self._prefixes.remove(found)
            return SlotAssignment(slot, 0, "lost")
        self._prefixes.refresh(found)
        return self._truncate(slot, found, n)

    def _truncate(self, slot: int, found: CachedPrefix, n: int) -> SlotAssignment:
        """Truncate a slot to the first ``n`` tokens of its cached sequence."""
        if self._context.remove_cells(slot, after=found.position(n)):
            return SlotAssignment(slot, n, None)
        self._context.remove_cells(slot)
        return SlotAssignment(slot, 0, "state")

    def _empty(self, slot: int) -> None:
        """Empty a slot; a cached sequence in it moves to host memory."""
        for each in self._prefixes.idle:
            if each.slot == slot:
                self._save(each)
        self._context.remove_cells(slot)

    def _save(self, prefix: CachedPrefix) -> None:
        """Move an idle sequence to host memory, or remove it if it does not fit."""
        prefix.first = self._as_copied(prefix).first
        if (state := self._state_of(prefix)) is None:
            self._prefixes.remove(prefix)
        else:
            self._prefixes.save(prefix, state)

    def _state_of(self, prefix: CachedPrefix) -> Bytes | None:
        """Copy a sequence's state to host memory; ``None`` if it does not fit."""
        assert prefix.slot is not None  # noqa: S101  # unsaved sequences are in a slot
        n_bytes = self._context.state_bytes(prefix.slot)
        if not self._prefixes.make_room(prefix.owner, n_bytes):
            return None
        return self._context.save(prefix.slot)

    def _can_copy(self, prefix: CachedPrefix, n: int) -> bool:
        """Tell whether a copy could be truncated to its first ``n`` tokens."""
        return self._prefixes.can_truncate(self._as_copied(prefix), n)

    def _as_copied(self, prefix: CachedPrefix) -> CachedPrefix:
        """Return a sequence as a copy would hold it: without cells before its window."""
        assert prefix.slot is not None  # noqa: S101  # unsaved sequences are in a slot
        first, window = self._context.first_position(prefix.slot), self._context.window
        end = prefix.position(len(prefix.tokens))
        return replace(prefix, first=max(first, end - window) if window else first)

    def _prefix_of(self, sequence: RunningSequence) -> CachedPrefix:
        return CachedPrefix(
            owner=sequence.job.owner,
            tokens=np.array(sequence.tokens[: sequence.n_cached], np.int32),
            first=self._context.first_position(sequence.slot),
            slot=sequence.slot,
            position_skips=sequence.prepared.position_skips,
        )


def _is_worth_copying(prefix: CachedPrefix, n: int) -> bool:
    return n * _MAX_COPIED_PER_REUSED >= len(prefix.tokens)


def n_contiguous_runs(slots: Collection[int]) -> int:
    """Count the runs of adjacent slots."""
    return sum(slot - 1 not in slots for slot in slots)
