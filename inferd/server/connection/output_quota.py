"""Quota of memory for finished answers that their clients have not read yet.

Their jobs are over and their permits returned, so nothing waits for these clients. The
answers only take memory, and that is what is bounded here.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import trio

from inferd.backend.gauge import GaugeSpec


@dataclass(slots=True, eq=False)
class PendingOutput:
    """The part of an answer that is not written yet."""

    uid: int
    n_bytes: int
    scope: trio.CancelScope
    """Around the task's wait for the client."""


class OutputQuota:
    """Bounds unwritten output; evicts the oldest outputs of the largest users.

    Laws (held by property tests):

    - The total is within the quota, unless there is only one output.
    - A new output is never evicted at once: its client has had no time to read it.
    - An evicted output is the oldest of the user with the most bytes, apart from the new
      one.

    Args:
        max_bytes: of all outputs; may change at any time, and applies to later outputs.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._pending: dict[PendingOutput, None] = {}  # oldest first

    @property
    def n_bytes(self) -> int:
        """Unwritten bytes in total."""
        return sum(each.n_bytes for each in self._pending)

    def gauge(self) -> GaugeSpec:
        """Describe a gauge of the unwritten bytes."""
        text = "Bytes of finished answers that clients have yet to read."
        return "unread_bytes", text, lambda: self.n_bytes

    @contextmanager
    def reserve(self, uid: int, n_bytes: int) -> Iterator[trio.CancelScope]:
        """Count an output while it is written, inside.

        Args:
            uid: the client's user.
            n_bytes: not written yet.

        Cancellation: the scope is cancelled when the output is evicted.
        """
        with trio.CancelScope() as scope:
            new_output = PendingOutput(uid, n_bytes, scope)
            for output in choose_evicted(self._pending, new_output, self.max_bytes):
                del self._pending[output]
                output.scope.cancel()
            self._pending[new_output] = None
            try:
                yield scope
            finally:
                self._pending.pop(new_output, None)


def choose_evicted(
    pending: Iterable[PendingOutput], new_output: PendingOutput, max_bytes: int
) -> list[PendingOutput]:
    """Choose the outputs to evict for a new one, in O(n + k log n) for k evicted ones.

    Args:
        pending: the present outputs, oldest first.
        new_output: the new one.
        max_bytes: for those that stay.
    """
    bytes_by_user = Counter({new_output.uid: new_output.n_bytes})
    queues = defaultdict[int, deque[tuple[int, PendingOutput]]](deque)
    for position, output in enumerate(pending):
        bytes_by_user[output.uid] += output.n_bytes
        queues[output.uid].append((position, output))
    n_over = bytes_by_user.total() - max_bytes
    largest = [(-bytes_by_user[uid], queue[0][0], uid) for uid, queue in queues.items()]
    heapify(largest)
    evicted = list[PendingOutput]()
    while n_over > 0 and largest:
        negative_bytes, _, uid = largest[0]
        _, oldest = queues[uid].popleft()
        evicted.append(oldest)
        n_over -= oldest.n_bytes
        if queues[uid]:
            heapreplace(
                largest, (negative_bytes + oldest.n_bytes, queues[uid][0][0], uid)
            )
        else:
            heappop(largest)
    return evicted
