"""Who sits out a step: answers whose grammars take long, while others write.

A grammar is asked between two tokens, and all answers of a batch wait meanwhile. What one
takes of that time beyond a little is owed to the others: it is let into a step again when
they have been computed for as long. Nothing changes for who writes alone, and no text does.
"""

from collections.abc import Iterable, Mapping

from inferd.worker.limits import GRAMMAR_FREE_S

__all__ = ["Dues"]


class Dues:
    """Shares the time of a batch out between grammars that take long and the others.

    One thread calls it. Seconds are what the caller says they are.

    Laws (held by property tests): while others write, what grammars take for tokens over
    ``GRAMMAR_FREE_S`` is no more than what is computed for them, and one token; one such
    answer is in a step, of users in turn; who is in a step alone never sits out.
    """

    def __init__(self) -> None:
        self._due_s = 0.0
        self._slow: dict[int, int] = {}
        """The users of answers whose last token took long, by ticket; who has waited
        longest first."""
        self._turns: dict[int, int] = {}
        """When each of these users was charged last, in charges."""
        self._n_charges = 0

    def charge(self, ticket: int, owner: int, seconds: float) -> None:
        """Note how long a grammar took for a step of an answer, and whose that is."""
        self.drop(ticket)
        if seconds <= GRAMMAR_FREE_S:
            return
        self._n_charges += 1
        self._due_s += seconds
        self._slow[ticket] = owner
        self._turns[owner] = self._n_charges
        users = set(self._slow.values())
        self._turns = {user: at for user, at in self._turns.items() if user in users}

    def pay(self, seconds: float) -> None:
        """Note how long a batch was computed, which is for all who are in it."""
        self._due_s = max(0.0, self._due_s - seconds)

    def drop(self, ticket: int) -> None:
        """Forget an answer; what it owes stays."""
        self._slow.pop(ticket, None)

    def resting(self, tickets: Iterable[int]) -> set[int]:
        """Choose who sits out the next step, of those who could be in it."""
        all_of_them = set(tickets)
        slow = [ticket for ticket in self._slow if ticket in all_of_them]
        if len(slow) == len(all_of_them):
            self._due_s = 0.0  # nobody was kept waiting but they
            return set()
        if slow and not self._due_s:
            slow.remove(_next_of(slow, self._slow, self._turns))
        return set(slow)


def _next_of(
    slow: Iterable[int], owners: Mapping[int, int], turns: Mapping[int, int]
) -> int:
    """Give the answer that has waited longest, of the user who has."""
    return min(slow, key=lambda ticket: turns[owners[ticket]])
