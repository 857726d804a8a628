"""How much of something may wait, and who has how much of it."""

from collections import Counter
from typing import NamedTuple


class Amount(NamedTuple):
    """Some of it, for a user."""

    uid: int
    units: int
    is_first: bool
    """Whether it is of a user's first request, which others cannot keep out."""


class Budget:
    """A bound on the sum of amounts, and on each user's: an equal share of it.

    First requests are bound only by one another, so that the sum may be twice the bound.
    An amount over it is taken where there is nothing to be weighed against it.

    Args:
        bound: in places, tokens or bytes.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._of_users: Counter[int] = Counter()
        self._first = 0
        self.spent = 0
        """The sum."""

    def has_room(self, amount: Amount, *, n_users: int) -> bool:
        """Tell whether one more amount fits.

        Args:
            amount: the one that is asked for.
            n_users: who wait, its own among them.
        """
        if amount.is_first:
            return not self._first or self._first + amount.units <= self._bound
        if not self.spent:
            return True
        mine = self._of_users[amount.uid] + amount.units
        fits_all = self.spent + amount.units <= self._bound
        return fits_all and mine <= self._bound // n_users

    def spend(self, amount: Amount) -> None:
        """Count an amount."""
        self.spent += amount.units
        self._first += amount.units * amount.is_first
        self._of_users[amount.uid] += amount.units

    def give_back(self, amount: Amount) -> None:
        """Count it no more."""
        self.spent -= amount.units
        self._first -= amount.units * amount.is_first
        self._of_users[amount.uid] -= amount.units
        if not self._of_users[amount.uid]:
            del self._of_users[amount.uid]
