"""Places for connections: for everybody, and a few that one user cannot fill."""

from collections import Counter
from typing import NamedTuple

from inferd.engine.ledger import Figure
from inferd.server.limits import SHORT_OF_PLACES_PART, SPARE_PLACES_PART


class Place(NamedTuple):
    """Where a connection is."""

    uid: int
    is_spare: bool


def n_spare(n_places: int) -> int:
    """Count the places that there are beside so many."""
    return -(-n_places // SPARE_PLACES_PART)


class Room:
    """Places for connections, shared by any number of sockets.

    A user may have all the places. When they are taken, spare ones are for users who have
    fewer than an equal share of the places; of these nobody gets more than an equal part.

    Args:
        n_places: connections at once, the spare ones apart; may change at any time, and
            who is inside stays.
    """

    def __init__(self, n_places: int) -> None:
        self.n_places = n_places
        self._held: Counter[int] = Counter()
        self._spares: Counter[int] = Counter()

    @property
    def n_held(self) -> int:
        """Connections there are."""
        return self._held.total()

    def needs_places_of(self, uid: int) -> bool:
        """Tell whether so few places are free that a user's idle connections have to go.

        They have to if the user has as many as the others in the mean, or more.
        """
        n_free = self.n_places - self.n_held
        has_many = self._held[uid] * len(self._held) >= self.n_held
        return has_many and n_free * SHORT_OF_PLACES_PART < self.n_places

    def figure(self) -> Figure:
        """Give what a monitoring system may want to know."""
        return "connections", "Clients connected.", lambda: self.n_held

    def take(self, uid: int) -> Place | None:
        """Take a place for a user, if there is one; it has to leave once."""
        is_spare = self.n_held - self._spares.total() >= self.n_places
        if is_spare and not self._has_spare(uid):
            return None
        self._held[uid] += 1
        self._spares[uid] += is_spare
        return Place(uid, is_spare)

    def leave(self, place: Place) -> None:
        """Give a place back."""
        self._held[place.uid] -= 1
        self._spares[place.uid] -= place.is_spare
        if not self._held[place.uid]:
            del self._held[place.uid], self._spares[place.uid]

    def _has_spare(self, uid: int) -> bool:
        spares, mine = n_spare(self.n_places), self._spares[uid]
        users = {*self._held, uid}
        sharers = {each for each in self._spares if self._spares[each]} | {uid}
        return (
            self._held[uid] < max(1, self.n_places // len(users))
            and self._spares.total() < spares
            and mine < max(1, spares // len(sharers))
        )
