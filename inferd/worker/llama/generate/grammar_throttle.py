"""Make answers with slow grammars skip steps while other answers run.

A grammar is evaluated between two tokens, and all answers of a batch wait meanwhile. An
answer whose grammar took long is left out of batches until the others have been computed for
as long. An answer that runs alone is never delayed, and no text changes.
"""

from collections.abc import Collection

from inferd.backend.caller import sharer_of
from inferd.limits.worker import GRAMMAR_UNTHROTTLED_S
from inferd.worker.llama.generate.sequence import RunningSequence

__all__ = ["GrammarThrottle"]


class GrammarThrottle:
    """Time accounting between slow grammars and the other answers of a batch.

    Only the decoding thread calls it. It reads no clock: callers pass durations.

    Laws (held by property tests): while other answers run, grammar evaluations of over
    ``GRAMMAR_UNTHROTTLED_S`` take no more time in all than batches do, plus one token; at
    most one answer with such a grammar is in a batch, its users taking turns; an answer that
    would be alone in a batch never skips it.
    """

    def __init__(self) -> None:
        self._debt_s = 0.0
        self._slow: dict[int, None] = {}
        """Tickets of answers whose grammar took long for its last token, oldest first."""
        self._last_charges: dict[int, int] = {}
        """By owner, and by whose share it uses: the number of the latest charge."""
        self._n_charges = 0

    def record_grammar_time(self, sequence: RunningSequence, seconds: float) -> None:
        """Record how long a grammar took for one step of an answer."""
        self.drop(sequence.ticket)
        if seconds > GRAMMAR_UNTHROTTLED_S:
            self._debt_s += seconds
            self._slow[sequence.ticket] = None
            self._n_charges += 1
            owner = sequence.job.owner
            for each in (owner, sharer_of(owner)):
                self._last_charges[each] = self._n_charges

    def record_batch_time(self, seconds: float) -> None:
        """Record how long a batch took, which pays back grammar time."""
        self._debt_s = max(0.0, self._debt_s - seconds)

    def drop(self, ticket: int) -> None:
        """Remove an answer; the time that it owes stays."""
        self._slow.pop(ticket, None)
        if not self._slow:
            self._last_charges.clear()

    def select(self, sequences: Collection[RunningSequence]) -> list[RunningSequence]:
        """Choose which of the sequences are in the next batch."""
        quick = [each for each in sequences if each.ticket not in self._slow]
        if not quick:
            self._debt_s = 0.0  # no other answer was waiting
            return [*sequences]
        if self._debt_s:
            return quick
        slow = {each.ticket: each for each in sequences if each.ticket in self._slow}
        in_turn = [slow[ticket] for ticket in self._slow if ticket in slow]
        in_turn.sort(key=lambda each: self._turn_of(each.job.owner))
        return quick + in_turn[:1]

    def _turn_of(self, owner: int) -> tuple[int, int]:
        """Return what orders owners: by user first, so that names multiply no turns."""
        last = self._last_charges
        return last.get(sharer_of(owner), 0), last.get(owner, 0)
