"""Draft tokens with a smaller model of the same vocabulary."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from inferd.limits.worker import DRAFT_READ_S, PREFILL_CHUNK_TOKENS
from inferd.worker.llama.generate.chunk_size import ChunkSizer
from inferd.worker.llama.generate.sequence import RunningSequence
from inferd.worker.llama.model.batch import Batch
from inferd.worker.llama.model.context import LlamaContext
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.speculation.drafter import Drafter

__all__ = ["DraftModel"]

_TOKENS_PER_DRAFT: Final = 4
"""Most tokens per sequence in a drafting batch; larger ones still decode prompts."""
_WEIGHT: Final = 0.2
"""Weight of one batch in the measured duration of a round."""


@dataclass(slots=True)
class _DraftCells:
    """Tokens of one sequence in the draft model's KV cache."""

    slot: int
    n_final: int = 0
    """Leading tokens that are final."""
    tail: list[int] = field(default_factory=list)
    """Drafted tokens after them."""

    @property
    def n_cached(self) -> int:
        return self.n_final + len(self.tail)


class DraftModel(Drafter):
    """Drafter that decodes a small model greedily, for all sequences in one batch.

    It decodes a prompt in chunks once the answer has started, and drafts nothing for that
    answer until it is done. It has no prefix cache: prompts that the main model reuses are
    decoded like others. It drafts nothing for prompts with media, since it has no projector.

    Args:
        model: a model with the vocabulary of the main one.
        n_ctx: tokens of one sequence.
        n_slots: sequences that run at once.
        n_threads: initial number of threads.

    Raises:
        LoadError: memory is insufficient for its context.

    Bounds:
        KV cache: ``n_ctx`` times ``n_slots`` tokens, reserved at load. Decoding prompts takes
        ``DRAFT_READ_S`` of a step.
    """

    def __init__(
        self, model: LlamaModel, *, n_ctx: int, n_slots: int, n_threads: int
    ) -> None:
        self._model = model
        self._context = LlamaContext.for_drafting(
            model, n_tokens=n_ctx * n_slots, n_slots=n_slots, n_threads=n_threads
        )
        self._batch = Batch(PREFILL_CHUNK_TOKENS)
        self._chunk_sizer = ChunkSizer(PREFILL_CHUNK_TOKENS, stall_s=DRAFT_READ_S)
        self._free = list(range(n_slots))
        self._cells: dict[int, _DraftCells] = {}

    def draft(
        self, wanted: Mapping[RunningSequence, int]
    ) -> Mapping[RunningSequence, list[int]]:
        """Decode the new tokens of each sequence, then draft for those that are complete."""
        rows = self._read([each for each in wanted if not each.prepared.media])
        drafts: dict[RunningSequence, list[int]] = {each: [] for each in rows}
        while rows and self._decode(n_rows=len(rows)):
            self._batch.clear()
            going_on: dict[RunningSequence, int] = {}
            for each, token in self._likeliest(rows):
                drafts[each].append(token)
                if len(drafts[each]) < wanted[each]:
                    going_on[each] = self._add(each, [token], n_logits=1)
            rows = going_on
        return drafts

    def drop(self, ticket: int) -> None:
        """Remove a job's cells."""
        if cells := self._cells.pop(ticket, None):
            self._context.remove_cells(cells.slot)
            self._free.append(cells.slot)

    def use_threads(self, n_threads: int) -> None:
        """Decode with this many threads from the next batch on."""
        self._context.use_threads(n_threads)

    def _read(self, sequences: Iterable[RunningSequence]) -> dict[RunningSequence, int]:
        """Fill a batch with new tokens; return the rows of sequences that are complete.

        Sequences with few new tokens come first, so that drafts for them continue while a
        long prompt is decoded. In the batch they are in the order of slots: see
        ``LlamaContext``.
        """
        self._batch.clear()
        rows: dict[RunningSequence, int] = {}
        room = self._chunk_sizer.chunk
        parts: list[tuple[RunningSequence, list[int], bool]] = []
        unread = [(each, self._unread(each)) for each in sequences]
        for each, new in sorted(unread, key=lambda pair: len(pair[1])):
            is_all = len(new) <= room
            parts.append((each, new if is_all else new[: max(0, room)], is_all))
            room -= len(new)
        for each, tokens, is_all in sorted(parts, key=self._slot_of_part):
            row = self._add(each, tokens, n_logits=int(is_all))
            if is_all:
                rows[each] = row
        if len(self._batch) and not rows:
            self._decode(n_rows=0)
        return rows

    def _slot_of_part(self, part: tuple[RunningSequence, list[int], bool]) -> int:
        return self._cells[part[0].ticket].slot

    def _unread(self, sequence: RunningSequence) -> list[int]:
        """Remove rejected drafts from the cells; return the tokens that are not decoded yet.

        At least the last token is returned: it is decoded for its logits.
        """
        if (cells := self._cells.get(sequence.ticket)) is None:
            cells = self._cells[sequence.ticket] = _DraftCells(self._free.pop())
        text = [*sequence.tokens[cells.n_final :], *sequence.likely_tokens]
        n_same = _n_common(cells.tail, text[:-1])
        if n_same < len(cells.tail):
            self._context.remove_cells(cells.slot, after=cells.n_final + n_same)
        n_final = min(n_same, len(sequence.tokens) - cells.n_final - 1)
        cells.tail = cells.tail[n_final:n_same]
        cells.n_final += n_final
        return text[n_same:]

    def _add(
        self, sequence: RunningSequence, tokens: list[int], *, n_logits: int
    ) -> int:
        """Append tokens to the batch; return the last one's row."""
        cells = self._cells[sequence.ticket]
        first = self._batch.add(
            tokens, at=cells.n_cached, sequence=cells.slot, n_logits=n_logits
        )
        cells.tail += tokens
        return first + len(tokens) - 1

    def _decode(self, *, n_rows: int) -> bool:
        """Decode the batch; if that fails, clear all cells and return false."""
        began_at = time.perf_counter()
        if self._context.decode(self._batch.handle):
            self._context.clear_cells()
            for each in self._cells.values():
                each.n_final, each.tail = 0, []
            return False
        seconds = time.perf_counter() - began_at
        self._chunk_sizer.observe(len(self._batch), seconds)
        if len(self._batch) <= n_rows * _TOKENS_PER_DRAFT:
            self.draft_round_s += _WEIGHT * (seconds - self.draft_round_s)
        return True

    def _likeliest(
        self, rows: Mapping[RunningSequence, int]
    ) -> Iterator[tuple[RunningSequence, int]]:
        """Yield the likeliest token of each row, except end tokens."""
        for sequence, row in rows.items():
            token = int(self._context.logits(row, self._model.n_vocab).argmax())
            if not self._model.is_end(token):
                yield sequence, token


def _n_common(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
