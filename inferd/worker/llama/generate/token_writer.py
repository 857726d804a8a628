"""Turn a batch's logits into tokens of answers: sample, append, look ahead, end."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from inferd.ipc.worker import Ended, Failed, Started, Step
from inferd.wire.responses import DraftCounts, Logprob, StopReason, Usage
from inferd.worker.llama.generate.batch_plan import BatchRow
from inferd.worker.llama.generate.grammar_throttle import GrammarThrottle
from inferd.worker.llama.generate.sampler import log_probabilities
from inferd.worker.llama.generate.sequence import RunningSequence
from inferd.worker.llama.grammar.constraint import ConstraintError
from inferd.worker.llama.model.context import LlamaContext
from inferd.worker.llama.model.weights import LlamaModel

__all__ = ["NAN_REASON", "NotANumberError", "StepOutput", "TokenWriter", "ended"]


NAN_REASON: Final = "the model's output is not finite"


class NotANumberError(Exception):
    """The model computed logits that are not finite."""


@dataclass(slots=True)
class StepOutput:
    """Results of one step for all sequences in it."""

    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    logprobs: list[tuple[int, Logprob]] = field(default_factory=list)
    token_ids: list[tuple[int, int]] = field(default_factory=list)
    drafted: list[tuple[int, DraftCounts]] = field(default_factory=list)
    prefilled: list[tuple[int, int]] = field(default_factory=list)
    """Decoded prompt tokens by ticket, for jobs that asked for progress."""

    def to_message(
        self, started: list[Started], ends: Sequence[Ended | Failed], n_read: int
    ) -> Step:
        """Build the step message; failures are sent as messages of their own."""
        return Step(
            started=started,
            pieces=self.pieces,
            logprobs=self.logprobs,
            token_ids=self.token_ids,
            prefilled=self.prefilled,
            drafted=self.drafted,
            ended=[end for end in ends if isinstance(end, Ended)] if ends else [],
            n_read=n_read,
        )


class TokenWriter:
    """Appends tokens to answers. Only the decoding thread calls it."""

    def __init__(
        self, model: LlamaModel, context: LlamaContext, throttle: GrammarThrottle
    ) -> None:
        self._model = model
        self._context = context
        self._throttle = throttle

    def advance(self, row: BatchRow, output: StepOutput) -> Ended | Failed | None:
        """Sample a token, and one after each accepted draft, then look ahead.

        Returns:
            The end of the answer, if it ends.

        Raises:
            NotANumberError: the logits are not finite.
        """
        sequence = row.sequence
        if not sequence.prepared.sampler.is_constrained:
            if row.drafts:
                return self._choose_all(row, output)
            token, logprob = self._choose(sequence, row.logits_row)
            return self._write(sequence, token, output, logprob)
        began_at = time.thread_time()
        try:
            return self._choose_all(row, output)
        except ConstraintError as error:
            if self._has_nan(row):
                raise NotANumberError from error
            reason = f"at token {sequence.n_written + 1} of the answer, {error}"
            return Failed(ticket=sequence.ticket, reason=reason, by_request=True)
        finally:
            self._throttle.record_grammar_time(sequence, time.thread_time() - began_at)

    def _choose_all(self, row: BatchRow, output: StepOutput) -> Ended | None:
        """Sample by the last token's row, and by one more row after each accepted draft.

        The grammar is evaluated as without speculation: forced tokens are not sampled and
        use up no random number, even if they were drafted.
        """
        sequence = row.sequence
        left = row.drafts[:]
        while True:
            row_index = row.logits_row + len(row.drafts) - len(left)
            token, logprob = self._choose(sequence, row_index)
            if end := self._write(sequence, token, output, logprob):
                return end
            is_cached = _match_drafts(sequence, left, [token])
            if is_cached and sequence.likely_tokens[:1] == [token]:
                sequence.likely_tokens = sequence.likely_tokens[
                    1:
                ]  # drafted by the grammar
                continue
            n_tokens = len(sequence.tokens)
            if end := self._look_ahead(sequence, output):
                return end
            if not (
                is_cached and _match_drafts(sequence, left, sequence.tokens[n_tokens:])
            ):
                return None

    def _look_ahead(
        self, sequence: RunningSequence, output: StepOutput
    ) -> Ended | None:
        """Append the tokens that the grammar forces; store those that it makes likely."""
        sampler = sequence.prepared.sampler
        forced, sequence.likely_tokens = sampler.lookahead()
        for token in forced:
            if end := self._write(sequence, token, output):
                return end
        return ended(sequence, "end") if sampler.is_finished else None

    def _choose(
        self, sequence: RunningSequence, row: int
    ) -> tuple[int, Logprob | None]:
        """Sample a token by one row of logits; with its log probability, if asked for."""
        sampler = sequence.prepared.sampler
        logprobs = None
        if n_alternatives := sequence.job.n_alternatives:
            logprobs = log_probabilities(self._logits(row))
        token = sampler.choose(self._context, row, n_written=sequence.n_written)
        logits = self._context.logits(row, self._model.n_vocab)
        if not math.isfinite(logits[token]):  # NaN spreads to all logits
            raise NotANumberError
        if logprobs is None or self._is_end(sequence, token):
            return token, None
        return token, self._model.logprob(token, logprobs, n_alternatives)

    def _write(
        self,
        sequence: RunningSequence,
        token: int,
        output: StepOutput,
        logprob: Logprob | None = None,
    ) -> Ended | None:
        """Append a token to the answer, unless it ends it.

        A log probability is sent only with its piece: the daemon pairs the two by order.
        """
        is_stop = sequence.job.stop_token_ids and _is_stop(sequence, token)
        if is_stop or self._model.is_end(token):
            stop_token = token if is_stop else None
            return ended(sequence, "end", stop_token=stop_token, end_token=token)
        sampler = sequence.prepared.sampler
        if sampler.is_constrained:
            sampler.accept(token)
        sequence.tokens.append(token)
        if sequence.job.wants_token_ids:
            output.token_ids.append((sequence.ticket, token))
        if logprob is not None:
            output.logprobs.append((sequence.ticket, logprob))
        output.pieces.append((sequence.ticket, self._model.piece(token)))
        if len(sequence.tokens) < sequence.n_most:
            return None
        return ended(sequence, "end" if sampler.is_finished else "length")

    def _is_end(self, sequence: RunningSequence, token: int) -> bool:
        return _is_stop(sequence, token) or self._model.is_end(token)

    def _has_nan(self, row: BatchRow) -> bool:
        """Tell whether a row's logits hold NaN, in which case the grammar is not at fault."""
        rows = range(row.logits_row, row.logits_row + 1 + len(row.drafts))
        return any(np.isnan(self._logits(each)).any() for each in rows)

    def _logits(self, row: int) -> npt.NDArray[np.float32]:
        return self._context.logits(row, self._model.n_vocab)


def _is_stop(sequence: RunningSequence, token: int) -> bool:
    """Tell whether a token is one of the job's stop tokens and may end the answer yet."""
    job = sequence.job
    return sequence.n_written >= job.min_tokens and token in job.stop_token_ids


def _match_drafts(
    sequence: RunningSequence, drafts: list[int], tokens: list[int]
) -> bool:
    """Count appended tokens as cached while they match the drafts; false at a mismatch."""
    for token in tokens:
        if drafts[:1] != [token]:
            return False
        del drafts[0]
        sequence.n_cached += 1
    return True


def ended(
    sequence: RunningSequence,
    why: StopReason,
    *,
    stop_token: int | None = None,
    end_token: int | None = None,
) -> Ended:
    """Build the message that ends an answer."""
    return Ended(
        ticket=sequence.ticket,
        stop_reason=why,
        usage=Usage(
            prompt_tokens=sequence.prepared.prompt_tokens,
            completion_tokens=sequence.n_written,
            cached_tokens=sequence.n_reused,
        ),
        stop_token_id=stop_token,
        end_token_id=end_token,
        structure_complete=sequence.prepared.sampler.structure_complete,
    )


def record_acceptance(row: BatchRow, n_true: int, output: StepOutput) -> None:
    """Record how many drafted tokens were accepted; those after a wrong one are untested."""
    n_likely = len(row.drafts) - row.n_drafted
    n_accepted = max(0, n_true - n_likely)
    if n_true >= n_likely:
        row.sequence.acceptance.observe(row.n_drafted, n_accepted)
    counts = DraftCounts(drafted_tokens=row.n_drafted, accepted_tokens=n_accepted)
    output.drafted.append((row.sequence.ticket, counts))


def nan_failure(sequence: RunningSequence) -> Failed:
    """Build the failure of a sequence whose logits are not finite."""
    return Failed(ticket=sequence.ticket, reason=NAN_REASON)
