"""Counts of the present requests of every user."""

from collections import Counter

from inferd.admission.preemption import RequestTraits

__all__ = ["UserRequests"]


class UserRequests:
    """Counts of present requests by user; users without requests are not kept."""

    def __init__(self) -> None:
        self._all: Counter[int] = Counter()
        self._writers: Counter[int] = Counter()
        self._live: Counter[int] = Counter()

    def is_first(self, traits: RequestTraits) -> bool:
        """Return whether a request is its user's first; of one that generates, the first such."""
        return not (self._writers if traits.writes else self._all)[traits.uid]

    def n_live(self, uid: int) -> int:
        """Return the number of a user's requests with live audio."""
        return self._live[uid]

    def add(self, traits: RequestTraits) -> None:
        """Count a request that arrived."""
        self._all[traits.uid] += 1
        self._writers[traits.uid] += traits.writes
        self._live[traits.uid] += traits.is_live

    def remove(self, traits: RequestTraits) -> None:
        """Stop counting a request that left."""
        self._all[traits.uid] -= 1
        self._writers[traits.uid] -= traits.writes
        self._live[traits.uid] -= traits.is_live
        if not self._all[traits.uid]:
            del self._all[traits.uid], self._writers[traits.uid], self._live[traits.uid]
