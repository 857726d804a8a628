"""Finished answers that their clients have yet to read: so many bytes, and no more.

Nobody waits for them: their jobs are over and their permits given back. They take memory
alone, and that is what is bounded here.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import trio

from inferd.engine.ledger import Figure


@dataclass(slots=True, eq=False)
class Rest:
    """What is left to be written of an answer."""

    uid: int
    n_bytes: int
    scope: trio.CancelScope
    """Of its writing."""


class Unread:
    """Has room for what is left of answers; cuts off those that take too much of it.

    Laws (held by property tests):

    - Together they are no larger than the bound, or there is one alone.
    - Whoever comes stays at first: a client has had no time to read what is just done.
    - Whoever is cut off is the oldest of the user who has most, the newcomer's own apart.

    Args:
        max_bytes: of all of them; may change at any time, for those who come later.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._rests: dict[Rest, None] = {}  # the oldest first

    @property
    def n_bytes(self) -> int:
        """Bytes of all."""
        return sum(each.n_bytes for each in self._rests)

    def figure(self) -> Figure:
        """Give what a monitoring system may want to know."""
        text = "Bytes of finished answers that clients have yet to read."
        return "unread_bytes", text, lambda: self.n_bytes

    @contextmanager
    def keeping(self, uid: int, n_bytes: int) -> Iterator[trio.CancelScope]:
        """Count an answer while it is written, inside.

        Args:
            uid: whose it is.
            n_bytes: what is left of it.

        Cancellation: the scope is cancelled when the answer has to go.
        """
        with trio.CancelScope() as scope:
            newcomer = Rest(uid, n_bytes, scope)
            for rest in surplus(self._rests, newcomer, self.max_bytes):
                del self._rests[rest]
                rest.scope.cancel()
            self._rests[newcomer] = None
            try:
                yield scope
            finally:
                self._rests.pop(newcomer, None)


def surplus(rests: Iterable[Rest], newcomer: Rest, max_bytes: int) -> list[Rest]:
    """Choose who has to go for a newcomer: n steps, and for each who goes log n.

    Args:
        rests: those who are there, the oldest first.
        newcomer: one more.
        max_bytes: of all who stay.
    """
    of_users = Counter({newcomer.uid: newcomer.n_bytes})
    queues = defaultdict[int, deque[tuple[int, Rest]]](deque)
    for place, rest in enumerate(rests):
        of_users[rest.uid] += rest.n_bytes
        queues[rest.uid].append((place, rest))
    n_over = of_users.total() - max_bytes
    most = [(-of_users[uid], queue[0][0], uid) for uid, queue in queues.items()]
    heapify(most)
    go = list[Rest]()
    while n_over > 0 and most:
        n_less, _, uid = most[0]
        _, oldest = queues[uid].popleft()
        go.append(oldest)
        n_over -= oldest.n_bytes
        if queues[uid]:
            heapreplace(most, (n_less + oldest.n_bytes, queues[uid][0][0], uid))
        else:
            heappop(most)
    return go
