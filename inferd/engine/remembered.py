"""Which grammars of each user are known to compile soon.

What one user has tried tells another nothing: neither finds the other's here, and one who
tries many displaces none but their own.
"""

from collections import OrderedDict
from collections.abc import Iterable

from inferd.job import NOBODY
from inferd.limits import GRAMMARS_REMEMBERED, OWNERS_REMEMBERED


class Remembered:
    """Digests of grammars, by the users who had them tried.

    Bounds:
        ``GRAMMARS_REMEMBERED`` of each of ``OWNERS_REMEMBERED`` users; those go first that
        were used longest ago. Of those who are counted together, and may be as many as they
        like, one is remembered.
    """

    def __init__(self) -> None:
        self._owners: OrderedDict[int, OrderedDict[bytes, None]] = OrderedDict()

    def of(self, owner: int) -> tuple[bytes, ...]:
        """Give a user's."""
        return tuple(self._owners.get(owner, ()))

    def add(self, owner: int, digests: Iterable[bytes]) -> None:
        """Note that a user's grammars have compiled."""
        if owner < NOBODY and owner not in self._owners:
            for other in [each for each in self._owners if each < NOBODY]:
                del self._owners[other]
        known = self._owners.setdefault(owner, OrderedDict())
        self._owners.move_to_end(owner)
        for digest in digests:
            known[digest] = None
            known.move_to_end(digest)
        while len(known) > GRAMMARS_REMEMBERED:
            known.popitem(last=False)
        while len(self._owners) > OWNERS_REMEMBERED:
            self._owners.popitem(last=False)
