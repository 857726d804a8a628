"""Advance all sequences in one batch: continuous batching with chunked prefill."""

from dataclasses import dataclass, field

import numpy as np

from inferd.ipc import Ended, Failed, Step
from inferd.limits import (
    FORCED_TOKENS,
    PREFILL_CHUNK_BUSY_TOKENS,
    PREFILL_CHUNK_TOKENS,
)
from inferd.wire.responses import Logprob, StopReason, Usage
from inferd.worker.backend import Outcome
from inferd.worker.llama.batch import Batch
from inferd.worker.llama.constraint import ConstraintError
from inferd.worker.llama.context import Context
from inferd.worker.llama.model import Model
from inferd.worker.llama.sampling import log_probabilities
from inferd.worker.llama.sequence import PreparedPrompt, Sequence

NO_NUMBER = "the model gave what is no number"
INTERRUPTED = 2


@dataclass(slots=True)
class _Row:
    """What one sequence has in the batch."""

    sequence: Sequence
    n_tokens: int
    drafts: list[int]
    logits_row: int | None
    """Of its last token; its drafts have the rows behind. ``None``: more tokens wait."""


@dataclass(slots=True)
class _Results:
    """A step's message under construction."""

    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    logprobs: list[tuple[int, Logprob]] = field(default_factory=list)
    prefilled: list[tuple[int, int]] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    is_spoilt: bool = False
    """Whether there was what is no number."""


class DecodeError(Exception):
    """llama.cpp refused a batch that should be sound."""


class Decoder:
    """Owns the slots of a context. One thread calls it, but for ``interrupt``."""

    def __init__(self, model: Model, context: Context, *, n_slots: int) -> None:
        self._model = model
        self._context = context
        self._batch = Batch(PREFILL_CHUNK_TOKENS)
        self._free = list(range(n_slots))
        self._running: dict[int, Sequence] = {}
        self._prefilling: frozenset[int] = frozenset()

    @property
    def is_busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running)

    def start(self, ticket: int, job: PreparedPrompt) -> None:
        """Give a job a free slot."""
        self._running[ticket] = Sequence(ticket, self._free.pop(), job)

    def drop(self, ticket: int) -> None:
        """Free a sequence's slot, if it has one."""
        if sequence := self._running.pop(ticket, None):
            self._context.forget(sequence.slot)
            self._free.append(sequence.slot)

    def interrupt(self, ticket: int) -> None:
        """Cut the decode short if this sequence's prompt is in it; any thread may call.

        All the others lose is the step: their tokens are decoded again, with the same
        logits. A flag that comes too late costs the next step its first node.
        """
        if ticket in self._prefilling:
            self._context.interrupt()

    def step(self) -> list[Outcome]:
        """Decode a batch and choose a token for each sequence that is past its prompt.

        Raises:
            DecodeError: the library failed; the process had better end.
        """
        outcome = _Results()
        for sequence in list(self._running.values()):
            if not sequence.prepared.max_tokens and not sequence.job.prefill_only:
                self._end(sequence, "length", outcome)
        rows = self._fill()
        if rows and self._decode(rows):
            for row in rows:
                self._advance(row, outcome)
            if outcome.is_spoilt:
                self._start_afresh(outcome)
        step = Step(
            pieces=outcome.pieces,
            logprobs=outcome.logprobs,
            prefilled=outcome.prefilled,
            ended=outcome.ended,
        )
        return [step, *outcome.failed]

    def _fill(self) -> list[_Row]:
        """Put running streams in the batch first, then prompts as far as there is room."""
        self._batch.clear()
        running = self._running.values()
        streams = [each for each in running if not each.is_prefilling]
        rows: list[_Row] = []
        room = PREFILL_CHUNK_TOKENS
        for n_after, sequence in zip(
            reversed(range(len(streams))), streams, strict=True
        ):
            rows.append(self._add(sequence, min(FORCED_TOKENS, room - n_after)))
            room -= rows[-1].n_tokens + len(rows[-1].drafts)
        if streams:
            room = min(room, PREFILL_CHUNK_BUSY_TOKENS)
        for sequence in running:
            if sequence.is_prefilling and room:
                rows.append(self._add(sequence, room))
                room -= rows[-1].n_tokens
        self._prefilling = frozenset(
            row.sequence.ticket for row in rows if row.sequence.is_prefilling
        )
        return rows

    def _add(self, sequence: Sequence, max_tokens: int) -> _Row:
        """Put the next tokens of a sequence in the batch; after its last one it chooses."""
        tokens = sequence.next_tokens(max_tokens)
        n_tokens = len(tokens)
        is_last = sequence.is_through_with(n_tokens)
        drafts = sequence.drafts[: max_tokens - n_tokens] if is_last else []
        first_row = self._batch.add(
            tokens + drafts,
            at=sequence.n_cached,
            sequence=sequence.slot,
            n_logits=1 + len(drafts) if is_last else 0,
        )
        last_row = first_row + n_tokens - 1
        return _Row(sequence, n_tokens, drafts, last_row if is_last else None)

    def _decode(self, rows: list[_Row]) -> bool:
        """Decode the batch; false if it was interrupted and left no trace."""
        code = self._context.decode(self._batch.handle)
        self._prefilling = frozenset()
        if code == 0:
            return True
        # Whole micro-batches may have stayed in the cache: back to what we counted.
        for row in rows:
            self._context.forget(row.sequence.slot, after=row.sequence.n_cached)
        if code != INTERRUPTED:
            raise DecodeError(f"llama_decode gave {code} for {len(self._batch)} tokens")
        self._context.allow()
        return False

    def _advance(self, row: _Row, outcome: _Results) -> None:
        sequence = row.sequence
        if sequence.is_prefilling and sequence.job.wants_progress:
            n_read = sequence.n_cached + row.n_tokens
            outcome.prefilled.append((sequence.ticket, n_read))
        sequence.n_cached += row.n_tokens
        if row.logits_row is None:
            return
        if sequence.job.prefill_only:
            self._end(sequence, "end", outcome)
            return
        try:
            self._go_on(sequence, row.drafts, row.logits_row, outcome)
        except ConstraintError as error:
            if self._has_nan(row):
                self._spoil(sequence, outcome)
                return
            reason = f"at token {sequence.n_written + 1} of the answer, {error}"
            self._fail(sequence, reason, outcome, by_request=True)

    def _go_on(
        self, sequence: Sequence, drafts: list[int], row: int, outcome: _Results
    ) -> None:
        """Choose a token, and one after each draft that was chosen; then look ahead."""
        while self._choose_next(sequence, row, outcome):
            if not drafts or drafts[0] != sequence.tokens[-1]:
                break
            sequence.n_cached += 1
            row += 1
            drafts = drafts[1:]
        else:
            return
        if drafts:
            self._context.forget(sequence.slot, after=sequence.n_cached)
        self._look_ahead(sequence, outcome)

    def _choose_next(self, sequence: Sequence, row: int, outcome: _Results) -> bool:
        """Choose and write a token; false if the answer ends."""
        token, logprob = self._choose(sequence, row)
        if not self._is_sound(token, row):
            self._spoil(sequence, outcome)
            return False
        if logprob is not None and not self._ends_with(sequence, token):
            outcome.logprobs.append((sequence.ticket, logprob))
        return self._write(sequence, token, outcome)

    def _look_ahead(self, sequence: Sequence, outcome: _Results) -> None:
        """Write the tokens that a grammar leaves no choice about; note the likely ones."""
        sampler = sequence.prepared.sampler
        certain, sequence.drafts = sampler.ahead()
        if not all(self._write(sequence, token, outcome) for token in certain):
            return
        if sampler.is_finished:
            self._end(sequence, "end", outcome)

    def _ends_with(self, sequence: Sequence, token: int) -> bool:
        return token in sequence.job.stop_token_ids or self._model.is_end(token)

    def _choose(self, sequence: Sequence, row: int) -> tuple[int, Logprob | None]:
        sampler = sequence.prepared.sampler
        if not (n_alternatives := sequence.job.n_alternatives):
            token = sampler.choose(self._context, row, n_written=sequence.n_written)
            return token, None
        known = log_probabilities(self._context.logits(row, self._model.n_vocab))
        token = sampler.choose(self._context, row, n_written=sequence.n_written)
        return token, self._model.logprob(token, known, n_alternatives)

    def _is_sound(self, token: int, row: int) -> bool:
        """Tell whether a token was chosen by numbers: one bad weight makes them none."""
        return bool(np.isfinite(self._context.logits(row, self._model.n_vocab)[token]))

    def _has_nan(self, row: _Row) -> bool:
        """Tell whether a row has what is no number: nothing is chosen then, or anything."""
        first = row.logits_row or 0
        return any(
            np.isnan(self._context.logits(each, self._model.n_vocab)).any()
            for each in range(first, first + 1 + len(row.drafts))
        )

    def _fail(
        self,
        sequence: Sequence,
        reason: str,
        outcome: _Results,
        *,
        by_request: bool = False,
    ) -> None:
        outcome.failed.append(
            Failed(ticket=sequence.ticket, reason=reason, by_request=by_request)
        )
        self.drop(sequence.ticket)

    def _spoil(self, sequence: Sequence, outcome: _Results) -> None:
        """Fail a sequence for what is no number: others may have caught it."""
        outcome.is_spoilt = True
        self._fail(sequence, NO_NUMBER, outcome)

    def _start_afresh(self, outcome: _Results) -> None:
        """Wipe the cache: what is no number in a dropped cell spoils all who share it."""
        for sequence in list(self._running.values()):
            if sequence.n_cached:
                self._fail(sequence, NO_NUMBER, outcome)
        self._context.wipe()

    def _write(self, sequence: Sequence, token: int, outcome: _Results) -> bool:
        """Add a token to the answer; false if the answer ends here."""
        if token in sequence.job.stop_token_ids:
            self._end(sequence, "end", outcome, stop_token=token)
            return False
        if self._model.is_end(token):
            self._end(sequence, "end", outcome)
            return False
        sequence.prepared.sampler.accept(token)
        sequence.tokens.append(token)
        outcome.pieces.append((sequence.ticket, self._model.piece(token)))
        if sequence.n_written == sequence.prepared.max_tokens:
            is_whole = sequence.prepared.sampler.is_finished
            self._end(sequence, "end" if is_whole else "length", outcome)
            return False
        return True

    def _end(
        self,
        sequence: Sequence,
        why: StopReason,
        outcome: _Results,
        *,
        stop_token: int | None = None,
    ) -> None:
        usage = Usage(
            prompt_tokens=sequence.prepared.prompt_tokens,
            completion_tokens=sequence.n_written,
        )
        outcome.ended.append(
            Ended(
                ticket=sequence.ticket,
                stop_reason=why,
                usage=usage,
                stop_token_id=stop_token,
                structure_complete=sequence.prepared.sampler.structure_complete,
            )
        )
        self.drop(sequence.ticket)
