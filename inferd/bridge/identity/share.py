"""A bound that no caller uses up alone; pure."""

from collections import Counter


class SharedLimit:
    """Counts what callers hold of a limit; one has half of it at most.

    Args:
        limit: of all callers.
        least: what one may hold in any case: the most that a single request needs.

    Bounds:
        Memory: an entry for each caller that holds something.
    """

    def __init__(self, limit: int, *, least: int = 1) -> None:
        self.limit = limit
        self.share = min(limit, max((limit + 1) // 2, least))
        """Of one caller."""
        self._held: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """What all callers hold."""
        return self._held.total()

    def left_for(self, name: str) -> int:
        """What a caller could still take."""
        return min(self.share - self._held[name], self.limit - self.total)

    def take(self, name: str, n: int = 1) -> bool:
        """Take something; tell whether there was enough, else nothing was taken."""
        if n > self.left_for(name):
            return False
        self._held[name] += n
        return True

    def give_back(self, name: str, n: int = 1) -> None:
        """Give back what was taken."""
        self._held[name] -= n
        if not self._held[name]:
            del self._held[name]
