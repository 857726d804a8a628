"""Quotas: a limit on the sum of charges, shared fairly between users."""

from dataclasses import dataclass
from typing import NamedTuple

from inferd.admission.shares import NOT_FIRST, CallerCounts, First, Shares
from inferd.backend.caller import Caller

__all__ = ["Charge", "Quota"]


class Charge(NamedTuple):
    """Units of a quota that are charged to a caller."""

    caller: Caller
    units: int
    first: First = NOT_FIRST
    """Whether it belongs to a first request, which others cannot keep out."""


@dataclass
class _Firsts:
    """The first charges that are compared with each other."""

    units: int = 0
    n_charges: int = 0
    """Those of 0 units are not counted."""

    def fit(self, units: int, limit: int) -> bool:
        """Tell whether one more fits: all of them do, or it is at most an even share."""
        share = limit // (self.n_charges + 1)
        return not self.units or self.units + units <= limit or units <= share


class Quota:
    """A limit on the sum of charges, and a share of it as a limit per user and principal.

    The first charges of users are compared with each other only. One fits if all of them
    fit, and always if it is at most an even share: the limit divided by their number, this
    one included. So the n-th adds at most one n-th of the limit, and n of them are at most
    the limit times 1 + 1/2 + … + 1/n. The first charges of a user's further principals are
    compared with each other in the same way, and with the user's share instead of the limit.

    A charge over the limit fits if there is no other to compare it with; it then counts as
    the limit in that sum.

    Args:
        limit: in requests, tokens or bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """May change at any time; charges that were made stay."""
        self._counts = CallerCounts()
        self._firsts: dict[int | None, _Firsts] = {}
        self.spent = 0
        """The sum of all charges."""

    def fits(self, charge: Charge, shares: Shares) -> bool:
        """Return whether one more charge fits.

        Args:
            charge: the charge to add.
            shares: of those who wait, its caller included.
        """
        caller, units, (is_first, among) = charge
        if is_first:
            limit = self.limit if among is None else shares.of_user(self.limit, among)
            return self._firsts.get(among, _Firsts()).fit(units, limit)
        if not self.spent:
            return True
        user_share = shares.of_user(self.limit, caller.user)
        return (
            self.spent + units <= self.limit
            and self._counts.of_user(caller.user) + units <= user_share
            and self._counts.of(caller) + units <= shares.of(self.limit, caller)
        )

    def spend(self, charge: Charge) -> None:
        """Add a charge."""
        self._add(charge, 1)

    def release(self, charge: Charge) -> None:
        """Subtract a charge."""
        self._add(charge, -1)

    def _add(self, charge: Charge, sign: int) -> None:
        caller, units, (is_first, among) = charge
        if not units:
            return
        self.spent += sign * units
        self._counts.add(caller, sign * units)
        if is_first:
            firsts = self._firsts.setdefault(among, _Firsts())
            firsts.units += sign * units
            firsts.n_charges += sign
            if not firsts.n_charges:
                del self._firsts[among]
