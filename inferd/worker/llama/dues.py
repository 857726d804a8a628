"""Who sits out a step: answers whose grammars take long, while others write.

A grammar is asked between two tokens, and all answers of a batch wait meanwhile. What one
takes of that time is owed to the others, unless it is little: it is let into a step again
when they have been computed for as long. Nothing changes for who writes alone, nor does any
text.
"""

from collections.abc import Collection

from inferd.worker.limits import GRAMMAR_FREE_S
from inferd.worker.llama.sequence import Sequence

__all__ = ["Dues"]


class Dues:
    """Shares the time of batches out between grammars that take long and the others.

    One thread calls it; how long something takes is what that says.

    Laws (held by property tests): while others write, what grammars take over
    ``GRAMMAR_FREE_S`` at once is no more than the time of batches, and one token; of answers
    held to these one at a time is in a batch, of their users in turn; who would be in it
    alone never sits out.
    """

    def __init__(self) -> None:
        self._due_s = 0.0
        self._slow: dict[int, None] = {}
        """Tickets of answers whose last token took long; who has waited longest first."""
        self._turns: dict[int, int] = {}
        """When their users were charged last, in charges."""
        self._n_charges = 0

    def charge(self, sequence: Sequence, seconds: float) -> None:
        """Note how long a grammar took for a step of an answer."""
        self.drop(sequence.ticket)
        if seconds > GRAMMAR_FREE_S:
            self._due_s += seconds
            self._slow[sequence.ticket] = None
            self._n_charges += 1
            self._turns[sequence.job.owner] = self._n_charges

    def pay(self, seconds: float) -> None:
        """Note how long a batch took, which is for all who are in it."""
        self._due_s = max(0.0, self._due_s - seconds)

    def drop(self, ticket: int) -> None:
        """Forget an answer; what it owes stays."""
        self._slow.pop(ticket, None)
        if not self._slow:
            self._turns.clear()

    def taking_part(self, sequences: Collection[Sequence]) -> list[Sequence]:
        """Choose who is in the next batch, of those who could be."""
        quick = [each for each in sequences if each.ticket not in self._slow]
        if not quick:
            self._due_s = 0.0  # nobody was kept waiting but they
            return [*sequences]
        if self._due_s:
            return quick
        slow = {each.ticket: each for each in sequences if each.ticket in self._slow}
        in_turn = [slow[ticket] for ticket in self._slow if ticket in slow]
        in_turn.sort(key=lambda each: self._turns.get(each.job.owner, 0))
        return quick + in_turn[:1]
