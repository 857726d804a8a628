"""The newest requests that have ended, kept within bounds that users share."""

import math
from collections import deque
from collections.abc import Iterator

from inferd.backend.caller import Caller
from inferd.limits.server import MAX_EXPLAINED, MAX_EXPLAINED_BYTES
from inferd.server.history.largest import LargestCount
from inferd.server.history.record import Life, life_of
from inferd.server.request_context import RequestContext
from inferd.server.request_index import RequestIndex


class EndedRequests:
    """The newest requests that have ended.

    Where they do not all fit, the oldest of the user with the most is forgotten, of a
    gateway the oldest of its principal with the most: who sends thousands makes others'
    requests forgotten only down to an equal share.

    Bounds:
        ``max_requests``, and ``MAX_EXPLAINED_BYTES`` of memory. Cost: constant for each.

    Args:
        max_requests: 0 to keep none.
    """

    def __init__(self, max_requests: int = MAX_EXPLAINED) -> None:
        self._max_requests = max_requests
        self._kept: RequestIndex[Life] = RequestIndex()
        self._n_bytes = 0
        self.complete_since = -math.inf
        """Since when every request that ended is kept, in seconds on trio's clock."""
        self._users: LargestCount[int] = LargestCount()
        self._principals: dict[int, LargestCount[Caller]] = {}
        self._numbers: dict[Caller, deque[int]] = {}

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._kept)

    def __iter__(self) -> Iterator[Life]:
        """Iterate over those that are kept, the last to end first."""
        return reversed(self._kept.of(None).values())

    @property
    def index(self) -> RequestIndex[Life]:
        """Those that are kept, the first to end first; not to be changed by others."""
        return self._kept

    @property
    def n_bytes(self) -> int:
        """Estimated memory of all records."""
        return self._n_bytes

    def add(self, context: RequestContext) -> None:
        """Keep what is told of a request that has just ended."""
        if not self._max_requests:
            return
        self._put(life_of(context, has_ended=True))
        while (
            len(self._kept) > self._max_requests or self._n_bytes > MAX_EXPLAINED_BYTES
        ):
            self._forget_one()

    def _put(self, life: Life) -> None:
        caller, number = life.caller, life.number
        self._kept.add(life)
        self._n_bytes += life.n_bytes_kept
        self._users.add(caller.user)
        self._principals.setdefault(caller.user, LargestCount()).add(caller)
        self._numbers.setdefault(caller, deque()).append(number)

    def _forget_one(self) -> None:
        user = self._users.largest()
        caller = self._principals[user].largest()
        forgotten = self._kept.remove(self._numbers[caller].popleft())
        self.complete_since = max(self.complete_since, forgotten.now)
        self._n_bytes -= forgotten.n_bytes_kept
        self._users.remove(user)
        self._principals[user].remove(caller)
        if not self._numbers[caller]:
            del self._numbers[caller]
        if not self._principals[user]:
            del self._principals[user]
