"""Counts by key, and the key with the largest."""

from typing import Generic, TypeVar

K = TypeVar("K")


class LargestCount(Generic[K]):
    """Counts by key that go up and down by one; tells who has the largest.

    Cost: each call takes constant time, on average.
    """

    def __init__(self) -> None:
        self._counts: dict[K, int] = {}
        self._by_count: dict[int, dict[K, None]] = {}
        self._largest = 0

    def __len__(self) -> int:
        """Return the number of keys with a count."""
        return len(self._counts)

    def add(self, key: K) -> None:
        """Count a key once more."""
        count = self._counts.get(key, 0)
        self._move(key, count, count + 1)
        self._largest = max(self._largest, count + 1)

    def remove(self, key: K) -> None:
        """Count a key once less."""
        count = self._counts[key]
        self._move(key, count, count - 1)
        if self._largest not in self._by_count:
            self._largest -= 1

    def largest(self) -> K:
        """Return the key with the largest count; of several, the one that has had it longest.

        Raises:
            StopIteration: nothing is counted.
        """
        return next(iter(self._by_count.get(self._largest, {})))

    def _move(self, key: K, before: int, after: int) -> None:
        if before:
            del self._by_count[before][key]
            if not self._by_count[before]:
                del self._by_count[before]
        if after:
            self._by_count.setdefault(after, {})[key] = None
            self._counts[key] = after
        else:
            del self._counts[key]
