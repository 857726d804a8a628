"""Advance all sequences in one batch: continuous batching with chunked prefill."""

import time
from typing import Final

from inferd.ipc.worker import Ended, Failed, Paused, Started
from inferd.limits.worker import PREFILL_CHUNK_TOKENS
from inferd.worker.backend import PreparedJob, StepOutcome
from inferd.worker.llama.generate.batch_plan import BatchRow, plan_batch
from inferd.worker.llama.generate.chunk_size import ChunkSizer
from inferd.worker.llama.generate.grammar_throttle import GrammarThrottle
from inferd.worker.llama.generate.sequence import PreparedPrompt, RunningSequence
from inferd.worker.llama.generate.slots import Slots
from inferd.worker.llama.generate.token_writer import (
    NotANumberError,
    StepOutput,
    TokenWriter,
    ended,
    nan_failure,
    record_acceptance,
)
from inferd.worker.llama.model.batch import Batch
from inferd.worker.llama.model.context import LlamaContext
from inferd.worker.llama.model.weights import LlamaModel
from inferd.worker.llama.multimodal.prefill import MediaPrefill, MediaPrefillStep
from inferd.worker.llama.speculation.drafter import Speculation

INTERRUPTED: Final = 2
"""The code of ``llama_decode`` for a decode that the abort callback ended."""


class DecodeError(Exception):
    """llama.cpp failed to decode a valid batch."""


class BatchDecoder:
    """Scheduler of a context's running sequences: continuous batching, chunked prefill.

    Only the decoding thread calls it, except for ``interrupt``.

    Args:
        model: a text model.
        context: the context to decode in.
        slots: the slots of that context.
        speculation: drafts tokens, if that is configured.
        media_prefill: decodes media of prompts, if the model has a projector.
    """

    def __init__(
        self,
        model: LlamaModel,
        context: LlamaContext,
        slots: Slots,
        speculation: Speculation | None = None,
        media_prefill: MediaPrefill | None = None,
    ) -> None:
        self._context = context
        self._speculation = speculation
        self._media_prefill = media_prefill
        self._can_roll_back = not model.is_recurrent
        self._throttle = GrammarThrottle()
        self._token_writer = TokenWriter(model, context, self._throttle)
        self._slots = slots
        self._batch = Batch(PREFILL_CHUNK_TOKENS)
        self._chunk_sizer = ChunkSizer(PREFILL_CHUNK_TOKENS)
        self._running: dict[int, RunningSequence] = {}
        self._rows: list[BatchRow] = []  # of the last batch, if the next has the same
        self._reading: list[BatchRow] = []  # those of the batch that prefill
        self._prefilling: frozenset[int] = frozenset()
        self._started: list[Started] = []
        self._to_pause: set[int] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running)

    def start(self, ticket: int, prepared: PreparedJob) -> None:
        """Assign a slot to a job, with the cached prefix of its prompt, and run it."""
        assert isinstance(prepared, PreparedPrompt)  # noqa: S101  # from ``Generator.prepare``
        assignment = self._slots.assign(prepared, self._running.values())
        sequence = RunningSequence(
            ticket, assignment.slot, prepared, n_reused=assignment.n_reused
        )
        self._running[ticket] = sequence
        self._rows = []
        if self._media_prefill:
            self._media_prefill.begin(sequence)
        self._started.append(
            Started(ticket=ticket, reuse=self._slots.reuse(assignment))
        )

    def pause(self, ticket: int) -> None:
        """Pause a sequence at the next token boundary after it has advanced."""
        if ticket in self._running:
            self._to_pause.add(ticket)

    def resume(self, ticket: int) -> None:
        """Resume a paused sequence, unless it was dropped."""
        if sequence := self._slots.resume(ticket, self._running.values()):
            self._running[ticket] = sequence
            self._rows = []
            if self._media_prefill:
                self._media_prefill.begin(sequence)

    def drop(self, ticket: int) -> None:
        """Remove a sequence, and free its slot, if it has one."""
        self._rows, self._reading = [], []  # they hold the prompt and its media
        self._to_pause.discard(ticket)
        self._throttle.drop(ticket)
        if sequence := self._running.pop(ticket, None):
            self._slots.release(sequence)
            if self._speculation:
                self._speculation.drop(ticket)
        elif not self._slots.drop(ticket):
            return
        if self._media_prefill:
            self._media_prefill.drop(ticket)

    def interrupt(self, ticket: int) -> None:
        """Abort the decode if it holds a chunk of this prompt; any thread may call.

        Other sequences of the batch lose the step: their tokens are decoded again, with the
        same logits. A recurrent model cannot remove tokens, so its decode is aborted only
        if this prompt is alone in the batch. A flag that is set too late aborts the next
        decode before its first node.
        """
        if ticket in self._prefilling:
            self._context.interrupt()
        if self._media_prefill:
            self._media_prefill.drop(ticket)

    def step(self) -> list[StepOutcome]:
        """Decode a batch and choose a token for each sequence whose prompt is decoded.

        Raises:
            DecodeError: the library failed; the process should end.
        """
        if self._rows and not self._to_pause:
            return self._go_on()
        paused = self._pause_all() if self._to_pause else []
        self._chunk_sizer.is_awaited = bool(paused)
        ends: list[Ended | Failed] = [
            ended(each, "length")
            for each in self._running.values()
            if not each.prepared.max_tokens and not each.job.prefill_only
        ]
        self._drop_ended(ends)
        output = StepOutput()
        n_read = self._prefill_media(output, ends)
        rows = self._fill()
        if rows and self._decode(rows):
            self._rows = rows
            if self._reading:
                n_read += self._count_read(output)
            ends += self._advance_all(rows, output)
        if self._is_steady():
            self._reading = []  # of what was read, nothing is asked again
        else:
            self._rows = []
        if self._media_prefill and self._running and not (rows or n_read or ends):
            n_read = int(self._media_prefill.wait())
        started, self._started = self._started, []
        step = output.to_message(started, ends, n_read)
        return [*paused, step, *(end for end in ends if isinstance(end, Failed))]

    def _go_on(self) -> list[StepOutcome]:
        """Decode the next token of each answer of the last batch.

        A plan would give the same rows, and takes longer than sampling does.
        """
        rows, self._rows = self._rows, []
        self._batch.advance([row.sequence.tokens[-1] for row in rows])
        output = StepOutput()
        ends: list[Ended | Failed] = []
        if self._decode(rows):
            self._rows = rows
            ends = self._advance_all(rows, output)
        step = output.to_message([], ends, 0)
        return [step, *(end for end in ends if isinstance(end, Failed))]

    def _is_steady(self) -> bool:
        """Tell whether the next batch has one more token for each row of the last."""
        return (
            not self._speculation
            and len(self._rows) == len(self._running)
            and all(row.is_plain and row.sequence.is_plain for row in self._rows)
        )

    def _pause_all(self) -> list[Paused]:
        """Pause the sequences that were asked to pause and have advanced since."""
        paused = [each for each in self._to_pause if self._running[each].has_advanced]
        for ticket in paused:
            self._rows = []
            self._to_pause.discard(ticket)
            self._slots.pause(self._running.pop(ticket))
            if self._speculation:
                self._speculation.drop(ticket)
            if self._media_prefill:
                self._media_prefill.cancel_queued(ticket)
        return [Paused(ticket=ticket) for ticket in paused]

    def _prefill_media(self, output: StepOutput, ends: list[Ended | Failed]) -> int:
        """Decode a chunk of one prompt's media; return the number of positions decoded."""
        if self._media_prefill is None:
            return 0
        ends += self._media_prefill.failures(self._running.values())
        self._drop_ended(ends)
        media_step = self._media_prefill.choose(
            self._running.values(), self._chunk_sizer
        )
        if media_step is None or not self._decode_media(
            self._media_prefill, media_step
        ):
            return 0
        sequence, n_tokens = media_step
        sequence.n_cached += n_tokens
        if sequence.job.wants_progress and sequence.has_advanced:
            output.prefilled.append((sequence.ticket, sequence.n_cached))
        return n_tokens

    def _decode_media(
        self, media_prefill: MediaPrefill, media_step: MediaPrefillStep
    ) -> bool:
        """Decode a chunk of media; false if it was interrupted and rolled back."""
        self._prefilling = frozenset({media_step.sequence.ticket})
        code = media_prefill.decode(media_step, self._chunk_sizer)
        self._prefilling = frozenset()
        if code:
            self._roll_back(code, [media_step.sequence], media_step.n_tokens)
        return not code

    def _fill(self) -> list[BatchRow]:
        """Plan a step and fill the batch, in the order of slots: see ``LlamaContext``."""
        self._rows = []
        reading = [each for each in self._running.values() if each.span is None]
        reading = self._throttle.select(reading)
        if self._speculation:
            self._speculation.draft([e for e in reading if not e.is_prefilling])
        rows = plan_batch(reading, self._chunk_sizer, can_roll_back=self._can_roll_back)
        rows.sort(key=lambda row: row.sequence.slot)
        self._batch.clear()
        for row in rows:
            self._add(row)
        # Without rollback, an interrupted step would recompute all other sequences.
        may_be_interrupted = self._can_roll_back or len(rows) == 1
        self._reading = [row for row in rows if row.sequence.is_prefilling]
        self._prefilling = frozenset(
            row.sequence.ticket for row in self._reading if may_be_interrupted
        )
        return rows

    def _add(self, row: BatchRow) -> None:
        sequence = row.sequence
        first = self._batch.add(
            sequence.next_tokens(row.n_tokens) + row.drafts,
            at=sequence.position,
            sequence=sequence.slot,
            n_logits=1 + len(row.drafts) if row.is_sampled else 0,
        )
        row.logits_row = first + row.n_tokens - 1

    def _decode(self, rows: list[BatchRow]) -> bool:
        """Decode the batch; false if it was interrupted and rolled back."""
        began_at = time.perf_counter()
        code = self._context.decode(self._batch.handle)
        self._prefilling = frozenset()
        if code == 0:
            seconds = time.perf_counter() - began_at
            self._chunk_sizer.observe(len(self._batch), seconds)
            self._throttle.record_batch_time(seconds)
            if self._speculation and not self._reading:
                self._speculation.observe_batch(len(self._batch), seconds)
            return True
        self._roll_back(code, [row.sequence for row in rows], len(self._batch))
        return False

    def _count_read(self, output: StepOutput) -> int:
        """Report prompts' progress by the decoded batch; return its tokens of prompts."""
        output.prefilled += [
            (row.sequence.ticket, row.sequence.n_cached + row.n_tokens)
            for row in self._reading
            if row.sequence.reports_progress
        ]
        return sum(row.n_tokens for row in self._reading)

    def _roll_back(
        self, code: int, sequences: list[RunningSequence], n_tokens: int
    ) -> None:
        """Remove uncounted cells: completed micro-batches may have stayed in the cache.

        Raises:
            DecodeError: the decode failed without an interruption.
        """
        for each in sequences:
            self._truncate(each)
        if code != INTERRUPTED:
            raise DecodeError(f"llama_decode gave {code} for {n_tokens} tokens")
        self._context.clear_interrupt()

    def _advance_all(
        self, rows: list[BatchRow], output: StepOutput
    ) -> list[Ended | Failed]:
        """Choose tokens for every sequence of the decoded batch; return those that end."""
        ends: list[Ended | Failed] = []
        has_nan = False
        for row in rows:
            row.sequence.n_cached += row.n_tokens
        for row in rows:
            if not row.is_sampled:
                continue
            try:
                end = self._advance(row, output)
            except NotANumberError:
                has_nan = True
                end = nan_failure(row.sequence)
            if end:
                ends.append(end)
        if has_nan:
            ends = self._clear_cache(ends)
        if ends:
            self._drop_ended(ends)
        return ends

    def _advance(self, row: BatchRow, output: StepOutput) -> Ended | Failed | None:
        sequence = row.sequence
        if sequence.job.prefill_only:
            return ended(sequence, "end")
        if not row.drafts:
            return self._token_writer.advance(row, output)
        n_before = sequence.n_cached
        end = self._token_writer.advance(row, output)
        n_true = sequence.n_cached - n_before
        if n_true < len(row.drafts):
            self._truncate(sequence)
        if row.n_drafted:
            record_acceptance(row, n_true, output)
        return end

    def _truncate(self, sequence: RunningSequence) -> None:
        """Remove the cells of rejected drafts, or all cells where that is not possible."""
        if not self._context.remove_cells(sequence.slot, after=sequence.position):
            self._context.remove_cells(sequence.slot)
            sequence.n_cached = 0
            if self._media_prefill:  # its cells are gone, so media are needed again
                self._media_prefill.begin(sequence)

    def _clear_cache(self, ends: list[Ended | Failed]) -> list[Ended | Failed]:
        """Clear the cache with its data: a NaN in a removed cell can reach other sequences."""
        over = {end.ticket for end in ends}
        ends += [
            nan_failure(each)
            for ticket, each in self._running.items()
            if each.n_cached and ticket not in over
        ]
        self._slots.clear()
        self._context.clear_with_data()
        for end in ends:
            self._running[end.ticket].n_cached = 0
        return ends

    def _drop_ended(self, ends: list[Ended | Failed]) -> None:
        for end in ends:
            self.drop(end.ticket)
