"""Quotas: a limit on the sum of charges, shared fairly between users."""

from collections import Counter
from typing import NamedTuple


class Charge(NamedTuple):
    """Units of a quota that are charged to a user."""

    uid: int
    units: int
    is_first: bool
    """Whether it belongs to a user's first request, which others cannot keep out."""

    @property
    def is_counted_first(self) -> bool:
        """Whether it counts among the first charges; a charge of 0 does not."""
        return self.is_first and self.units > 0


class Quota:
    """A limit on the sum of charges, and an equal share of it as a limit per user.

    First charges are compared with first charges only. One fits if all of them fit, and
    always if it is at most an even share: the limit divided by their number, this one
    included. So the n-th adds at most one n-th of the limit, and n of them are at most the
    limit times 1 + 1/2 + … + 1/n.

    A charge over the limit fits if there is no other to compare it with; it then counts as
    the limit in that sum.

    Args:
        limit: in requests, tokens or bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """May change at any time; charges that were made stay."""
        self._by_user: Counter[int] = Counter()
        self._first = 0
        self._n_first = 0
        self.spent = 0
        """The sum of all charges."""

    def fits(self, charge: Charge, *, n_users: int) -> bool:
        """Return whether one more charge fits.

        Args:
            charge: the charge to add.
            n_users: users who wait, its own included.
        """
        if charge.is_first:
            share = self.limit // (self._n_first + 1)
            fits_firsts = self._first + charge.units <= self.limit
            return not self._first or fits_firsts or charge.units <= share
        if not self.spent:
            return True
        own = self._by_user[charge.uid] + charge.units
        fits_all = self.spent + charge.units <= self.limit
        return fits_all and own <= self.limit // n_users

    def n_users(self, *uids: int) -> int:
        """Count the users with any charge, and the given users."""
        return len(self._by_user.keys() | {*uids})

    def spend(self, charge: Charge) -> None:
        """Add a charge."""
        self.spent += charge.units
        self._first += charge.units * charge.is_first
        self._n_first += charge.is_counted_first
        self._by_user[charge.uid] += charge.units

    def release(self, charge: Charge) -> None:
        """Subtract a charge."""
        self.spent -= charge.units
        self._first -= charge.units * charge.is_first
        self._n_first -= charge.is_counted_first
        self._by_user[charge.uid] -= charge.units
        if not self._by_user[charge.uid]:
            del self._by_user[charge.uid]
