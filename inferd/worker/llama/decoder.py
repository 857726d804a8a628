"""Advance all sequences in one batch: continuous batching with chunked prefill."""

import time
from typing import Final

from inferd.ipc import Ended, Failed, Paused, Started
from inferd.worker.backend import Outcome
from inferd.worker.limits import PREFILL_CHUNK_TOKENS
from inferd.worker.llama.batch import Batch
from inferd.worker.llama.context import Context
from inferd.worker.llama.dues import Dues
from inferd.worker.llama.looking import Look, Looking
from inferd.worker.llama.model import Model
from inferd.worker.llama.pace import Pace
from inferd.worker.llama.plan import Row, plan
from inferd.worker.llama.sequence import PreparedPrompt, Sequence
from inferd.worker.llama.slots import Slots
from inferd.worker.llama.speculation import Speculation
from inferd.worker.llama.writer import (
    NotANumberError,
    Writer,
    Written,
    end_of,
    settle_guesses,
    spoilt,
)

INTERRUPTED: Final = 2


class DecodeError(Exception):
    """llama.cpp refused a batch that should be sound."""


class Decoder:
    """Owns the sequences of a context. One thread calls it, but for ``interrupt``.

    Args:
        model: that writes.
        context: to decode in.
        slots: the context's.
        speculation: what guesses ahead, if anything does.
        looking: what reads media, if the model can.
    """

    def __init__(
        self,
        model: Model,
        context: Context,
        slots: Slots,
        speculation: Speculation | None = None,
        looking: Looking | None = None,
    ) -> None:
        self._context = context
        self._speculation = speculation
        self._looking = looking
        self._can_take_back = not model.is_recurrent
        self._dues = Dues()
        self._writer = Writer(model, context, self._dues)
        self._slots = slots
        self._batch = Batch(PREFILL_CHUNK_TOKENS)
        self._pace = Pace(PREFILL_CHUNK_TOKENS)
        self._running: dict[int, Sequence] = {}
        self._prefilling: frozenset[int] = frozenset()
        self._started: list[Started] = []
        self._to_pause: set[int] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running)

    def start(self, ticket: int, prepared: PreparedPrompt) -> None:
        """Give a job a slot, and what is known of its prompt."""
        place = self._slots.take(prepared, self._running.values())
        sequence = Sequence(ticket, place.slot, prepared, n_reused=place.n_reused)
        self._running[ticket] = sequence
        if self._looking:
            self._looking.begin(sequence)
        self._started.append(Started(ticket=ticket, reuse=self._slots.reuse(place)))

    def pause(self, ticket: int) -> None:
        """Have a sequence stand still at the next token border where it has got on."""
        if ticket in self._running:
            self._to_pause.add(ticket)

    def resume(self, ticket: int) -> None:
        """Have a sequence go on that stands still, unless it was dropped."""
        if sequence := self._slots.resume(ticket, self._running.values()):
            self._running[ticket] = sequence
            if self._looking:
                self._looking.begin(sequence)

    def drop(self, ticket: int) -> None:
        """Forget a sequence, and free its slot, if it has one."""
        self._to_pause.discard(ticket)
        self._dues.drop(ticket)
        if sequence := self._running.pop(ticket, None):
            self._slots.give_back(sequence)
            if self._speculation:
                self._speculation.drop(ticket)
        elif not self._slots.drop(ticket):
            return
        if self._looking:
            self._looking.drop(ticket)

    def interrupt(self, ticket: int) -> None:
        """Cut the decode short if this sequence's prompt is in it; any thread may call.

        All the others lose is the step: their tokens are decoded again, with the same
        logits. A recurrent model could not go back, so it is cut short only where this
        prompt is alone in the batch. A flag that comes too late costs the next step its first node.
        """
        if ticket in self._prefilling:
            self._context.interrupt()
        if self._looking:
            self._looking.drop(ticket)

    def step(self) -> list[Outcome]:
        """Decode a batch and choose a token for each sequence that is past its prompt.

        Raises:
            DecodeError: the library failed; the process had better end.
        """
        paused = self._pause_all()
        ends: list[Ended | Failed] = [
            end_of(each, "length")
            for each in self._running.values()
            if not each.prepared.max_tokens and not each.job.prefill_only
        ]
        self._settle(ends)
        written = Written()
        n_read = self._look(written, ends)
        rows = self._fill()
        if rows and self._decode(rows):
            n_read += sum(row.n_tokens for row in rows if row.sequence.is_prefilling)
            written.prefilled += [
                (row.sequence.ticket, row.sequence.n_cached + row.n_tokens)
                for row in rows
                if row.sequence.tells_progress
            ]
            ends += self._go_on(rows, written)
        if self._looking and self._running and not (rows or n_read or ends):
            n_read = int(self._looking.wait())
        started, self._started = self._started, []
        step = written.step(started, ends, n_read)
        return [*paused, step, *(end for end in ends if isinstance(end, Failed))]

    def _pause_all(self) -> list[Paused]:
        """Take their slots from those that are to stand still and have got on."""
        paused = [each for each in self._to_pause if self._running[each].is_further]
        for ticket in paused:
            self._to_pause.discard(ticket)
            self._slots.pause(self._running.pop(ticket))
            if self._speculation:
                self._speculation.drop(ticket)
            if self._looking:
                self._looking.rest(ticket)
        return [Paused(ticket=ticket) for ticket in paused]

    def _look(self, written: Written, ends: list[Ended | Failed]) -> int:
        """Read a part of one prompt's medium; give the tokens whose place it took."""
        if self._looking is None:
            return 0
        ends += self._looking.failures(self._running.values())
        self._settle(ends)
        look = self._looking.choose(self._running.values(), self._pace)
        if look is None or not self._decode_look(self._looking, look):
            return 0
        sequence, n_tokens = look
        sequence.n_cached += n_tokens
        if sequence.job.wants_progress and sequence.is_further:
            written.prefilled.append((sequence.ticket, sequence.n_cached))
        return n_tokens

    def _decode_look(self, looking: Looking, look: Look) -> bool:
        """Decode a part of a medium; false if it was interrupted and left no trace."""
        self._prefilling = frozenset({look.sequence.ticket})
        code = looking.decode(look, self._pace)
        self._prefilling = frozenset()
        if code:
            self._take_back(code, [look.sequence], look.n_tokens)
        return not code

    def _fill(self) -> list[Row]:
        """Plan a step and put it in the batch, in the order of slots: see ``Context``."""
        reading = [each for each in self._running.values() if each.span is None]
        reading = self._dues.taking_part(reading)
        if self._speculation:
            self._speculation.guess([e for e in reading if not e.is_prefilling])
        rows = plan(reading, self._pace, can_take_back=self._can_take_back)
        rows.sort(key=lambda row: row.sequence.slot)
        self._batch.clear()
        for row in rows:
            self._add(row)
        # Who cannot go back a step would read all of the others anew.
        may_be_cut = self._can_take_back or len(rows) == 1
        cut = [
            row.sequence for row in rows if row.sequence.is_prefilling and may_be_cut
        ]
        self._prefilling = frozenset(each.ticket for each in cut)
        return rows

    def _add(self, row: Row) -> None:
        sequence = row.sequence
        first = self._batch.add(
            sequence.next_tokens(row.n_tokens) + row.drafts,
            at=sequence.position,
            sequence=sequence.slot,
            n_logits=1 + len(row.drafts) if row.chooses else 0,
        )
        row.logits_row = first + row.n_tokens - 1

    def _decode(self, rows: list[Row]) -> bool:
        """Decode the batch; false if it was interrupted and left no trace."""
        began_at = time.perf_counter()
        code = self._context.decode(self._batch.handle)
        self._prefilling = frozenset()
        if code == 0:
            seconds = time.perf_counter() - began_at
            self._pace.observe(len(self._batch), seconds)
            self._dues.pay(seconds)
            is_reading = any(row.sequence.is_prefilling for row in rows)
            if self._speculation and not is_reading:
                self._speculation.observe_batch(len(self._batch), seconds)
            return True
        self._take_back(code, [row.sequence for row in rows], len(self._batch))
        return False

    def _take_back(self, code: int, sequences: list[Sequence], n_tokens: int) -> None:
        """Go back to what was counted: whole micro-batches may have stayed in the cache.

        Raises:
            DecodeError: nobody interrupted it.
        """
        for each in sequences:
            self._cut(each)
        if code != INTERRUPTED:
            raise DecodeError(f"llama_decode gave {code} for {n_tokens} tokens")
        self._context.allow()

    def _go_on(self, rows: list[Row], written: Written) -> list[Ended | Failed]:
        """Take every sequence of a batch a step further; give those that end."""
        ends: list[Ended | Failed] = []
        is_spoilt = False
        for row in rows:
            row.sequence.n_cached += row.n_tokens
        for row in rows:
            if not row.chooses:
                continue
            try:
                end = self._advance(row, written)
            except NotANumberError:
                is_spoilt = True
                end = spoilt(row.sequence)
            if end:
                ends.append(end)
        if is_spoilt:
            ends = self._start_afresh(ends)
        self._settle(ends)
        return ends

    def _advance(self, row: Row, written: Written) -> Ended | Failed | None:
        sequence = row.sequence
        if sequence.job.prefill_only:
            return end_of(sequence, "end")
        n_before = sequence.n_cached
        end = self._writer.go_on(row, written)
        n_true = sequence.n_cached - n_before
        if n_true < len(row.drafts):
            self._cut(sequence)
        if row.n_guessed:
            settle_guesses(row, n_true, written)
        return end

    def _cut(self, sequence: Sequence) -> None:
        """Drop the cells of tokens that turned out not to be the sequence's."""
        if not self._context.forget(sequence.slot, after=sequence.position):
            self._context.forget(sequence.slot)
            sequence.n_cached = 0
            if self._looking:  # what was in the cache is needed now
                self._looking.begin(sequence)

    def _start_afresh(self, ends: list[Ended | Failed]) -> list[Ended | Failed]:
        """Wipe the cache: what is no number in a dropped cell spoils all who share it."""
        over = {end.ticket for end in ends}
        ends += [
            spoilt(each)
            for ticket, each in self._running.items()
            if each.n_cached and ticket not in over
        ]
        self._slots.clear()
        self._context.wipe()
        for end in ends:
            self._running[end.ticket].n_cached = 0
        return ends

    def _settle(self, ends: list[Ended | Failed]) -> None:
        for end in ends:
            self.drop(end.ticket)
