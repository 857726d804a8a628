"""How much of something may wait, and who has how much of it."""

from collections import Counter
from typing import NamedTuple


class Amount(NamedTuple):
    """Some of it, for a user."""

    uid: int
    units: int
    is_first: bool
    """Whether it is of a user's first request, which others cannot keep out."""

    @property
    def is_counted_first(self) -> bool:
        """Whether it is one of those that share; nothing is no amount."""
        return self.is_first and self.units > 0


class Budget:
    """A bound on the sum of amounts, and on each user's: an equal share of it.

    First ones are weighed against first ones alone. One fits if all of them do, and
    always if it is no more than an even share: the bound divided by how many they are,
    this one among them, whatever their size. So the n-th adds one n-th of the bound at
    most, and n of them are no more than the bound times 1 + 1/2 + … + 1/n.

    An amount over the bound fits where there is nothing to be weighed against it; it then
    counts for the bound in that sum.

    Args:
        bound: in places, tokens or bytes.
    """

    def __init__(self, bound: int) -> None:
        self.bound = bound
        """It may change at any time; what is spent stays."""
        self._of_users: Counter[int] = Counter()
        self._first = 0
        self._n_first = 0
        self.spent = 0
        """The sum."""

    def has_room(self, amount: Amount, *, n_users: int) -> bool:
        """Tell whether one more amount fits.

        Args:
            amount: the one that is asked for.
            n_users: who wait, its own among them.
        """
        if amount.is_first:
            share = self.bound // (self._n_first + 1)
            fits_firsts = self._first + amount.units <= self.bound
            return not self._first or fits_firsts or amount.units <= share
        if not self.spent:
            return True
        mine = self._of_users[amount.uid] + amount.units
        fits_all = self.spent + amount.units <= self.bound
        return fits_all and mine <= self.bound // n_users

    def n_users(self, *uids: int) -> int:
        """Count the users who have spent any of it, and these."""
        return len(self._of_users.keys() | {*uids})

    def spend(self, amount: Amount) -> None:
        """Count an amount."""
        self.spent += amount.units
        self._first += amount.units * amount.is_first
        self._n_first += amount.is_counted_first
        self._of_users[amount.uid] += amount.units

    def give_back(self, amount: Amount) -> None:
        """Count it no more."""
        self.spent -= amount.units
        self._first -= amount.units * amount.is_first
        self._n_first -= amount.is_counted_first
        self._of_users[amount.uid] -= amount.units
        if not self._of_users[amount.uid]:
            del self._of_users[amount.uid]
