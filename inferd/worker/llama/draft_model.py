"""Guess with a smaller model of the same vocabulary, which reads along."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from inferd.worker.limits import DRAFT_READ_S, PREFILL_CHUNK_TOKENS
from inferd.worker.llama.batch import Batch
from inferd.worker.llama.context import Context
from inferd.worker.llama.model import Model
from inferd.worker.llama.pace import Pace
from inferd.worker.llama.sequence import Sequence
from inferd.worker.llama.speculation import Drafter

__all__ = ["DraftModel"]

_READ_ALONG: Final = 4
"""Tokens a sequence in a batch that guesses; in a larger one something is still read."""
_WEIGHT: Final = 0.2
"""What one batch changes of what is known of their time."""


@dataclass(slots=True)
class _Reading:
    """What the draft model has in its cells of one sequence."""

    slot: int
    n_sure: int = 0
    """Tokens that are the sequence's for good."""
    tail: list[int] = field(default_factory=list)
    """Tokens behind them that were likely."""

    @property
    def n_cached(self) -> int:
        return self.n_sure + len(self.tail)


class DraftModel(Drafter):
    """A model that writes the likeliest tokens ahead, for all sequences in one batch.

    It reads a prompt once its answer is being written, a chunk at a time, and guesses
    nothing of that answer until then. It keeps nothing of sequences that are over: what
    the model itself finds in its cache is read like the rest. Where media stand in a prompt
    it guesses nothing: it has no projector.

    Args:
        model: with the vocabulary of the one that it guesses for.
        n_ctx: tokens of one sequence.
        n_slots: sequences that run at once.
        n_threads: to begin with.

    Raises:
        LoadError: there is no memory for its context.

    Bounds:
        KV cache: ``n_ctx`` times ``n_slots`` tokens, reserved at load. Reading takes
        ``DRAFT_READ_S`` of a step.
    """

    def __init__(
        self, model: Model, *, n_ctx: int, n_slots: int, n_threads: int
    ) -> None:
        self._model = model
        self._context = Context.to_draft(
            model, n_tokens=n_ctx * n_slots, n_slots=n_slots, n_threads=n_threads
        )
        self._batch = Batch(PREFILL_CHUNK_TOKENS)
        self._pace = Pace(PREFILL_CHUNK_TOKENS, stall_s=DRAFT_READ_S)
        self._free = list(range(n_slots))
        self._readings: dict[int, _Reading] = {}

    def draft(self, wanted: Mapping[Sequence, int]) -> Mapping[Sequence, list[int]]:
        """Read what is new of each sequence, then write ahead of those that are read."""
        rows = self._read([each for each in wanted if not each.prepared.media])
        drafts: dict[Sequence, list[int]] = {each: [] for each in rows}
        while rows and self._decode(n_rows=len(rows)):
            self._batch.clear()
            going_on: dict[Sequence, int] = {}
            for each, token in self._likeliest(rows):
                drafts[each].append(token)
                if len(drafts[each]) < wanted[each]:
                    going_on[each] = self._add(each, [token], n_logits=1)
            rows = going_on
        return drafts

    def drop(self, ticket: int) -> None:
        """Forget a job's cells."""
        if reading := self._readings.pop(ticket, None):
            self._context.forget(reading.slot)
            self._free.append(reading.slot)

    def use_threads(self, n_threads: int) -> None:
        """Decode with this many threads from the next batch on."""
        self._context.use_threads(n_threads)

    def _read(self, sequences: Iterable[Sequence]) -> dict[Sequence, int]:
        """Fill a batch with what is new; give the rows of those it reads to the end.

        Those with little of it come first: they are guessed while a long prompt is read.
        In the batch they stand in the order of slots: see ``Context``.
        """
        self._batch.clear()
        rows: dict[Sequence, int] = {}
        room = self._pace.chunk
        parts: list[tuple[Sequence, list[int], bool]] = []
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

    def _slot_of_part(self, part: tuple[Sequence, list[int], bool]) -> int:
        return self._readings[part[0].ticket].slot

    def _unread(self, sequence: Sequence) -> list[int]:
        """Forget what turned out not to be a sequence's; give what is not read of it.

        That is one token at least: the last one is read for what follows.
        """
        if (reading := self._readings.get(sequence.ticket)) is None:
            reading = self._readings[sequence.ticket] = _Reading(self._free.pop())
        text = [*sequence.tokens[reading.n_sure :], *sequence.drafts]
        n_same = _n_common(reading.tail, text[:-1])
        if n_same < len(reading.tail):
            self._context.forget(reading.slot, after=reading.n_sure + n_same)
        n_sure = min(n_same, len(sequence.tokens) - reading.n_sure - 1)
        reading.tail = reading.tail[n_sure:n_same]
        reading.n_sure += n_sure
        return text[n_same:]

    def _add(self, sequence: Sequence, tokens: list[int], *, n_logits: int) -> int:
        """Append tokens to the batch; give the last one's row."""
        reading = self._readings[sequence.ticket]
        first = self._batch.add(
            tokens, at=reading.n_cached, sequence=reading.slot, n_logits=n_logits
        )
        reading.tail += tokens
        return first + len(tokens) - 1

    def _decode(self, *, n_rows: int) -> bool:
        """Decode the batch; if that fails forget everything, and guess nothing."""
        began_at = time.perf_counter()
        if self._context.decode(self._batch.handle):
            self._context.forget_all()
            for each in self._readings.values():
                each.n_sure, each.tail = 0, []
            return False
        seconds = time.perf_counter() - began_at
        self._pace.observe(len(self._batch), seconds)
        if len(self._batch) <= n_rows * _READ_ALONG:
            self.round_s += _WEIGHT * (seconds - self.round_s)
        return True

    def _likeliest(
        self, rows: Mapping[Sequence, int]
    ) -> Iterator[tuple[Sequence, int]]:
        """Give the likeliest token of each row, but for those that end the answer."""
        for sequence, row in rows.items():
            token = int(self._context.logits(row, self._model.n_vocab).argmax())
            if not self._model.is_end(token):
                yield sequence, token


def _n_common(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
