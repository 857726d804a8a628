"""Who is here, and with how much: requests of each user, whatever they are doing."""

from collections import Counter

from inferd.admission.shares import Claim

__all__ = ["Users"]


class Users:
    """Counts of requests by user; of those who have left nothing is remembered."""

    def __init__(self) -> None:
        self._all: Counter[int] = Counter()
        self._writers: Counter[int] = Counter()
        self._live: Counter[int] = Counter()

    def is_first(self, claim: Claim) -> bool:
        """Tell whether nothing of its user's is here, or nothing that writes."""
        return not (self._writers if claim.writes else self._all)[claim.uid]

    def n_live(self, uid: int) -> int:
        """Count a user's requests to which sound is appended."""
        return self._live[uid]

    def come(self, claim: Claim) -> None:
        """Count one more."""
        self._all[claim.uid] += 1
        self._writers[claim.uid] += claim.writes
        self._live[claim.uid] += claim.is_live

    def go(self, claim: Claim) -> None:
        """Count it no more."""
        self._all[claim.uid] -= 1
        self._writers[claim.uid] -= claim.writes
        self._live[claim.uid] -= claim.is_live
        if not self._all[claim.uid]:
            del self._all[claim.uid], self._writers[claim.uid], self._live[claim.uid]
