"""Go on with answers by the logits of a batch: choose, write, look ahead, end."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from inferd.ipc import Ended, Failed, Started, Step
from inferd.wire.responses import Guesses, Logprob, StopReason, Usage
from inferd.worker.llama.constraint import ConstraintError
from inferd.worker.llama.context import Context
from inferd.worker.llama.dues import Dues
from inferd.worker.llama.model import Model
from inferd.worker.llama.plan import Row
from inferd.worker.llama.sampling import log_probabilities
from inferd.worker.llama.sequence import Sequence

__all__ = ["NO_NUMBER", "NotANumberError", "Writer", "Written", "end_of"]


NO_NUMBER: Final = "the model gave what is no number"


class NotANumberError(Exception):
    """The model gave what is no number."""


@dataclass(slots=True)
class Written:
    """What the answers in a batch got."""

    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    logprobs: list[tuple[int, Logprob]] = field(default_factory=list)
    guessed: list[tuple[int, Guesses]] = field(default_factory=list)
    prefilled: list[tuple[int, int]] = field(default_factory=list)
    """Tokens of prompts that are read, of those who want to know."""

    def step(
        self, started: list[Started], ends: Iterable[Ended | Failed], n_read: int
    ) -> Step:
        """Put together what is told of all this, but for those that failed."""
        return Step(
            started=started,
            pieces=self.pieces,
            logprobs=self.logprobs,
            prefilled=self.prefilled,
            guessed=self.guessed,
            ended=[end for end in ends if isinstance(end, Ended)],
            n_read=n_read,
        )


class Writer:
    """Writes the tokens of answers. Only the thread that decodes calls it."""

    def __init__(self, model: Model, context: Context, dues: Dues) -> None:
        self._model = model
        self._context = context
        self._dues = dues

    def go_on(self, row: Row, written: Written) -> Ended | Failed | None:
        """Choose a token, and one after each draft that was right, and look ahead.

        Returns:
            How the answer ends, if it does.

        Raises:
            NotANumberError: there is nothing to choose by.
        """
        sequence = row.sequence
        began_at = time.thread_time()
        try:
            return self._choose_all(row, written)
        except ConstraintError as error:
            if self._has_nan(row):
                raise NotANumberError from error
            reason = f"at token {sequence.n_written + 1} of the answer, {error}"
            return Failed(ticket=sequence.ticket, reason=reason, by_request=True)
        finally:
            if sequence.prepared.sampler.is_held:
                self._dues.charge(sequence, time.thread_time() - began_at)

    def _choose_all(self, row: Row, written: Written) -> Ended | None:
        """Choose by the last row, and by one after each draft that turned out right.

        The grammar is asked as if nothing had been guessed: what it leaves no choice about
        is not chosen, and costs no random number, where it was guessed either.
        """
        sequence = row.sequence
        left = row.drafts[:]
        while True:
            place = row.logits_row + len(row.drafts) - len(left)
            token = self._choose(sequence, place, written)
            if end := self._write(sequence, token, written):
                return end
            is_there = _are_there(sequence, left, [token])
            if is_there and sequence.drafts[:1] == [token]:
                sequence.drafts = sequence.drafts[1:]  # the grammar's own
                continue
            n_tokens = len(sequence.tokens)
            if end := self._look_ahead(sequence, written):
                return end
            if not (
                is_there and _are_there(sequence, left, sequence.tokens[n_tokens:])
            ):
                return None

    def _look_ahead(self, sequence: Sequence, written: Written) -> Ended | None:
        """Write the tokens that a grammar leaves no choice about; note the likely ones."""
        sampler = sequence.prepared.sampler
        certain, sequence.drafts = sampler.ahead()
        for token in certain:
            if end := self._write(sequence, token, written):
                return end
        return end_of(sequence, "end") if sampler.is_finished else None

    def _choose(self, sequence: Sequence, row: int, written: Written) -> int:
        """Choose a token by a row of the last batch."""
        sampler = sequence.prepared.sampler
        known = None
        if n_alternatives := sequence.job.n_alternatives:
            known = log_probabilities(self._logits(row))
        token = sampler.choose(self._context, row, n_written=sequence.n_written)
        if not math.isfinite(
            self._logits(row)[token]
        ):  # one bad weight makes them none
            raise NotANumberError
        if known is not None and not self._is_end(sequence, token):
            logprob = self._model.logprob(token, known, n_alternatives)
            written.logprobs.append((sequence.ticket, logprob))
        return token

    def _write(self, sequence: Sequence, token: int, written: Written) -> Ended | None:
        """Add a token to the answer, unless it ends it."""
        if self._is_end(sequence, token):
            is_own = token in sequence.job.stop_token_ids
            return end_of(sequence, "end", stop_token=token if is_own else None)
        sampler = sequence.prepared.sampler
        sampler.accept(token)
        sequence.tokens.append(token)
        written.pieces.append((sequence.ticket, self._model.piece(token)))
        if sequence.n_written < sequence.prepared.max_tokens:
            return None
        return end_of(sequence, "end" if sampler.is_finished else "length")

    def _is_end(self, sequence: Sequence, token: int) -> bool:
        return token in sequence.job.stop_token_ids or self._model.is_end(token)

    def _has_nan(self, row: Row) -> bool:
        """Tell whether a row has what is no number: a grammar is not to blame then."""
        rows = range(row.logits_row, row.logits_row + 1 + len(row.drafts))
        return any(np.isnan(self._logits(each)).any() for each in rows)

    def _logits(self, row: int) -> npt.NDArray[np.float32]:
        return self._context.logits(row, self._model.n_vocab)


def _are_there(sequence: Sequence, drafts: list[int], tokens: list[int]) -> bool:
    """Take tokens that were written off the drafts, as far as they are in the cache."""
    for token in tokens:
        if drafts[:1] != [token]:
            return False
        del drafts[0]
        sequence.n_cached += 1
    return True


def end_of(
    sequence: Sequence, why: StopReason, *, stop_token: int | None = None
) -> Ended:
    """Say how an answer ended."""
    return Ended(
        ticket=sequence.ticket,
        stop_reason=why,
        usage=Usage(
            prompt_tokens=sequence.prepared.prompt_tokens,
            completion_tokens=sequence.n_written,
            cached_tokens=sequence.n_reused,
        ),
        stop_token_id=stop_token,
        structure_complete=sequence.prepared.sampler.structure_complete,
    )


def settle_guesses(row: Row, n_true: int, written: Written) -> None:
    """Note how many of the guesses came true; behind a wrong draft none was tested."""
    n_likely = len(row.drafts) - row.n_guessed
    n_accepted = max(0, n_true - n_likely)
    if n_true >= n_likely:
        row.sequence.trust.observe(row.n_guessed, n_accepted)
    guesses = Guesses(drafted_tokens=row.n_guessed, accepted_tokens=n_accepted)
    written.guessed.append((row.sequence.ticket, guesses))


def spoilt(sequence: Sequence) -> Failed:
    """Say that an answer cannot go on: the model gave what is no number."""
    return Failed(ticket=sequence.ticket, reason=NO_NUMBER)
