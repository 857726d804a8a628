"""Counts of the present requests of every user."""

from inferd.admission.preemption import RequestTraits
from inferd.admission.shares import CallerCounts, First, Shares

__all__ = ["UserRequests"]


class UserRequests:
    """Counts of present requests by caller; callers without requests are not kept."""

    def __init__(self) -> None:
        self._all = CallerCounts()
        self._writers = CallerCounts()
        self._live = CallerCounts()

    def first(self, traits: RequestTraits) -> First:
        """Return whether a request is its caller's first; of one that generates, the first such."""
        counts = self._writers if traits.writes else self._all
        return counts.next_first(traits.caller)

    def may_go_live(
        self, traits: RequestTraits, max_live: int, max_weight: int
    ) -> bool:
        """Tell whether a caller may have one more request with live audio.

        Args:
            traits: of the request.
            max_live: such requests of a caller. A user has as many for each of the parts
                that its principals have of other limits.
            max_weight: the most parts of one user.
        """
        caller = traits.caller
        weight = Shares([*self._live, caller], max_weight).weight(caller.user)
        return (
            self._live.of(caller) < max_live
            and self._live.of_user(caller.user) < max_live * weight
        )

    def add(self, traits: RequestTraits) -> None:
        """Count a request that arrived."""
        self._count(traits, 1)

    def remove(self, traits: RequestTraits) -> None:
        """Stop counting a request that left."""
        self._count(traits, -1)

    def _count(self, traits: RequestTraits, n: int) -> None:
        self._all.add(traits.caller, n)
        if traits.writes:
            self._writers.add(traits.caller, n)
        if traits.is_live:
            self._live.add(traits.caller, n)
