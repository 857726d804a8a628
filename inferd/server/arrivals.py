"""Requests that have been read and wait to be answered: so many of a connection and a user."""

from collections import Counter, deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from inferd.errors import InferdError, PeerError
from inferd.limits import READ_AHEAD_BYTES, READ_AHEAD_REQUESTS
from inferd.server.activity import Activity
from inferd.server.limits import LEAST_READ_AHEAD, READ_AHEAD_OF_A_USER
from inferd.wire.codec import Request

R = TypeVar("R", bound=Request)


class Arrival(NamedTuple, Generic[R]):
    """A request that has been read."""

    request: R
    activity: Activity
    refusal: InferdError | None = None
    """Why it is not to be served, where that is known as it is read."""


class ReadAhead:
    """Counts what each user has had read ahead, over all its connections."""

    def __init__(self) -> None:
        self._users: Counter[int] = Counter()

    def count(self, user: int) -> int:
        """Tell how many requests of a user are read and not answered yet."""
        return self._users[user]

    def add(self, user: int, n: int) -> None:
        """Count so many more, or less."""
        self._users[user] += n
        if not self._users[user]:
            del self._users[user]


class Arrivals(Generic[R]):
    """What one connection has had read ahead, in order; lines that are no requests as well.

    Bounds:
        Has room for ``READ_AHEAD_REQUESTS``, and for ``LEAST_READ_AHEAD`` where its user has
        ``READ_AHEAD_OF_A_USER`` on all connections. Whoever adds to it asks first.

    Args:
        ahead: counts those of all connections.
        user: whose connection it is.
    """

    def __init__(self, ahead: ReadAhead, user: int) -> None:
        self._ahead = ahead
        self._user = user
        self._all: deque[Arrival[R] | PeerError] = deque()
        self.n_bytes = 0
        """What the requests take, without what was appended."""

    def __len__(self) -> int:
        """Count them."""
        return len(self._all)

    def __iter__(self) -> Iterator[Activity]:
        """Go through the requests among them, in order."""
        return (each.activity for each in self._all if isinstance(each, Arrival))

    def has_room(self, *, is_awaited: bool) -> bool:
        """Tell whether one more may be read.

        Args:
            is_awaited: whether what is answered waits for what follows: then what other
                connections have does not count.
        """
        n = len(self._all)
        if n >= READ_AHEAD_REQUESTS:
            return False
        if n < LEAST_READ_AHEAD or is_awaited:
            return True
        return self._ahead.count(self._user) < READ_AHEAD_OF_A_USER

    def has_room_for_bytes(self, n_more: int) -> bool:
        """Tell whether there is room besides so many bytes that are not requests yet."""
        return self.n_bytes + n_more < READ_AHEAD_BYTES

    def append(self, arrival: Arrival[R] | PeerError) -> None:
        """Add one."""
        self._all.append(arrival)
        self._ahead.add(self._user, 1)
        if isinstance(arrival, Arrival):
            self.n_bytes += _size_of(arrival.activity)

    def take(self) -> Arrival[R] | PeerError:
        """Take the first of them; there is one."""
        arrival = self._all.popleft()
        self._ahead.add(self._user, -1)
        if isinstance(arrival, Arrival):
            self.n_bytes -= _size_of(arrival.activity)
        return arrival

    def clear(self) -> list[Activity]:
        """Take out all; give the requests among them."""
        left = list(self)
        self._ahead.add(self._user, -len(self._all))
        self._all.clear()
        self.n_bytes = 0
        return left


def _size_of(activity: Activity) -> int:
    """Count what a request takes before its turn, without what was appended."""
    return activity.n_bytes + activity.parcel.size
