"""Requests that are found by their number, their owner or their id."""

from typing import Generic, Protocol, TypeVar

from inferd.server.history.record import cut_id
from inferd.server.identity.peer import Peer


class Findable(Protocol):
    """A request, or the record of one."""

    @property
    def number(self) -> int:
        """Its own."""

    @property
    def request_id(self) -> str:
        """Its id, which others may have, too."""

    @property
    def peer(self) -> Peer:
        """Whose it is."""


K = TypeVar("K")
R = TypeVar("R", bound=Findable)


class RequestIndex(Generic[R]):
    """Requests in the order in which they were added.

    Bounds: those of its callers. Cost: constant to add and to remove one.
    """

    def __init__(self) -> None:
        self._all: dict[int, R] = {}
        self._by_owner: dict[int, dict[int, R]] = {}
        self._by_id: dict[str, dict[int, R]] = {}

    def __len__(self) -> int:
        """Return the number of all requests."""
        return len(self._all)

    def add(self, request: R) -> None:
        """Add a request with a number that none here has."""
        number, request_id = request.number, cut_id(request.request_id)
        self._all[number] = request
        self._by_owner.setdefault(request.peer.owner, {})[number] = request
        self._by_id.setdefault(request_id, {})[number] = request

    def remove(self, number: int) -> R:
        """Remove the request with a number, and return it.

        Raises:
            KeyError: there is none.
        """
        request = self._all.pop(number)
        _remove(self._by_owner, request.peer.owner, number)
        _remove(self._by_id, cut_id(request.request_id), number)
        return request

    def of(self, owner: int | None) -> dict[int, R]:
        """Return the requests of an owner by number, all of them for ``None``.

        Ownership: the index changes what it returns, and its callers do not.
        """
        return self._all if owner is None else self._by_owner.get(owner, {})

    def find(
        self,
        *,
        owner: int | None = None,
        request_id: str | None = None,
        number: int | None = None,
    ) -> list[R]:
        """Find the requests that are of an owner, have an id, and have a number.

        Args:
            owner: whose they are; ``None`` for anybody's.
            request_id: their id, of which only what records have is compared; ``None``
                for any.
            number: which it is; ``None`` for any.

        Bounds:
            Looks at those requests that meet the one condition that the fewest meet: never
            at more than the owner has.
        """
        groups = [self.of(owner)]
        if request_id is not None:
            groups.append(self._by_id.get(cut_id(request_id), {}))
        if number is not None:
            groups.append({number: self._all[number]} if number in self._all else {})
        fewest, *others = sorted(groups, key=len)
        if not others:
            return [*fewest.values()]
        return [
            request
            for each, request in fewest.items()
            if all(each in group for group in others)
        ]


def _remove(groups: dict[K, dict[int, R]], key: K, number: int) -> None:
    group = groups[key]
    del group[number]
    if not group:
        del groups[key]
