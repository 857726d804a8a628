"""Advance all sequences in one batch: continuous batching with chunked prefill."""

from dataclasses import dataclass, field

import numpy as np

from inferd.ipc import Ended, Failed, Step
from inferd.job import GenerateJob
from inferd.limits import PREFILL_CHUNK_BUSY_TOKENS, PREFILL_CHUNK_TOKENS
from inferd.wire.responses import Logprob, StopReason, Usage
from inferd.worker.backend import Outcome, PreparedJob
from inferd.worker.llama.batch import Batch
from inferd.worker.llama.context import Context
from inferd.worker.llama.model import Model
from inferd.worker.llama.sampling import Sampler, log_probabilities

NO_NUMBER = "the model gave what is no number"
INTERRUPTED = 2


class PreparedPrompt(PreparedJob):
    """A tokenised prompt, and the sampler that waits for it."""

    def __init__(
        self, tokens: list[int], job: GenerateJob, max_tokens: int, sampler: Sampler
    ) -> None:
        self.tokens = tokens
        self.job = job
        self.max_tokens = max_tokens
        """Tokens the answer may have, by request and by context."""
        self.sampler = sampler

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the rendered prompt."""
        return len(self.tokens)


@dataclass(slots=True)
class _Sequence:
    """A running job."""

    ticket: int
    slot: int
    prepared: PreparedPrompt
    n_cached: int = 0
    """Tokens in the KV cache."""
    n_written: int = 0
    next_token: int | None = None
    """The last token written, not decoded yet; ``None`` during prefill."""

    @property
    def job(self) -> GenerateJob:
        """What was asked."""
        return self.prepared.job

    @property
    def is_prefilling(self) -> bool:
        """Whether its prompt is not decoded yet."""
        return self.next_token is None


@dataclass(slots=True)
class _Row:
    """What one sequence has in the batch."""

    sequence: _Sequence
    n_tokens: int
    logits_row: int | None


@dataclass(slots=True)
class _Results:
    """A step's message under construction."""

    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    logprobs: list[tuple[int, Logprob]] = field(default_factory=list)
    prefilled: list[tuple[int, int]] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)


class DecodeError(Exception):
    """llama.cpp refused a batch that should be sound."""


class Decoder:
    """Owns the slots of a context. One thread calls it, but for ``interrupt``."""

    def __init__(self, model: Model, context: Context, *, n_slots: int) -> None:
        self._model = model
        self._context = context
        self._batch = Batch(PREFILL_CHUNK_TOKENS)
        self._free = list(range(n_slots))
        self._running: dict[int, _Sequence] = {}
        self._prefilling: frozenset[int] = frozenset()

    @property
    def is_busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running)

    def start(self, ticket: int, job: PreparedPrompt) -> None:
        """Give a job a free slot."""
        self._running[ticket] = _Sequence(ticket, slot=self._free.pop(), prepared=job)

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
            if outcome.failed:
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
        rows: list[_Row] = []
        prefilling: list[_Sequence] = []
        for sequence in self._running.values():
            if sequence.next_token is None:
                prefilling.append(sequence)
            else:
                rows.append(
                    self._add(sequence, [sequence.next_token], wants_logits=True)
                )
        room = PREFILL_CHUNK_BUSY_TOKENS if rows else PREFILL_CHUNK_TOKENS
        for sequence in prefilling:
            if room:
                chunk = sequence.prepared.tokens[
                    sequence.n_cached : sequence.n_cached + room
                ]
                is_last = sequence.n_cached + len(chunk) == len(
                    sequence.prepared.tokens
                )
                rows.append(self._add(sequence, chunk, wants_logits=is_last))
                room -= len(chunk)
        self._prefilling = frozenset(
            row.sequence.ticket for row in rows if row.sequence.is_prefilling
        )
        return rows

    def _add(
        self, sequence: _Sequence, tokens: list[int], *, wants_logits: bool
    ) -> _Row:
        row = self._batch.add(
            tokens,
            at=sequence.n_cached,
            sequence=sequence.slot,
            wants_logits=wants_logits,
        )
        return _Row(sequence, len(tokens), row if wants_logits else None)

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
        sequence.n_cached += row.n_tokens
        if sequence.is_prefilling and sequence.job.wants_progress:
            outcome.prefilled.append((sequence.ticket, sequence.n_cached))
        if row.logits_row is None:
            return
        if sequence.job.prefill_only:
            self._end(sequence, "end", outcome)
            return
        token, logprob = self._choose(sequence, row.logits_row)
        if not self._is_sound(token, row.logits_row):
            self._fail(sequence, outcome)
        elif token in sequence.job.stop_token_ids:
            self._end(sequence, "end", outcome, stop_token=token)
        elif self._model.is_end(token):
            self._end(sequence, "end", outcome)
        else:
            if logprob is not None:
                outcome.logprobs.append((sequence.ticket, logprob))
            self._write(sequence, token, outcome)

    def _choose(self, sequence: _Sequence, row: int) -> tuple[int, Logprob | None]:
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

    def _fail(self, sequence: _Sequence, outcome: _Results) -> None:
        outcome.failed.append(Failed(ticket=sequence.ticket, reason=NO_NUMBER))
        self.drop(sequence.ticket)

    def _start_afresh(self, outcome: _Results) -> None:
        """Wipe the cache: what is no number in a dropped cell spoils all who share it."""
        for sequence in list(self._running.values()):
            if sequence.n_cached:
                self._fail(sequence, outcome)
        self._context.wipe()

    def _write(self, sequence: _Sequence, token: int, outcome: _Results) -> None:
        sequence.next_token = token
        sequence.n_written += 1
        outcome.pieces.append((sequence.ticket, self._model.piece(token)))
        if sequence.n_written == sequence.prepared.max_tokens:
            self._end(sequence, "length", outcome)

    def _end(
        self,
        sequence: _Sequence,
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
            )
        )
        self.drop(sequence.ticket)
