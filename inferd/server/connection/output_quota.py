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

from inferd.backend.caller import Caller
from inferd.backend.gauge import GaugeSpec


@dataclass(slots=True, eq=False)
class PendingOutput:
    """The part of an answer that is not written yet."""

    caller: Caller
    n_bytes: int
    scope: trio.CancelScope
    """Around the task's wait for the client."""


_Numbered = tuple[int, PendingOutput]
"""An output, after its place among all: the oldest has the lowest."""
_Queue = tuple[int, list[_Numbered]]
"""Bytes of a user or a principal, and its outputs in the order in which they would be evicted."""


class OutputQuota:
    """Bounds unwritten output; evicts the oldest outputs of the largest users.

    Laws (held by property tests):

    - The total is within the quota, unless there is only one output.
    - A new output is never evicted at once: its client has had no time to read it.
    - An evicted output is one of the user with the most bytes: the oldest of that one of its
      principals who has the most, apart from the new one.

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
    def reserve(self, caller: Caller, n_bytes: int) -> Iterator[trio.CancelScope]:
        """Count an output while it is written, inside.

        Args:
            caller: who asked.
            n_bytes: not written yet.

        Cancellation: the scope is cancelled when the output is evicted.
        """
        with trio.CancelScope() as scope:
            new_output = PendingOutput(caller, n_bytes, scope)
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
    """Choose the outputs to evict for a new one, in O(n log n).

    Args:
        pending: the present outputs, oldest first.
        new_output: the new one.
        max_bytes: for those that stay.
    """
    bytes_by_caller = Counter({new_output.caller: new_output.n_bytes})
    queues = defaultdict[Caller, list[_Numbered]](list)
    for position, output in enumerate(pending):
        caller = output.caller
        bytes_by_caller[caller] += output.n_bytes
        queues[caller].append((position, output))
    n_over = bytes_by_caller.total() - max_bytes
    if n_over <= 0:
        return []
    bytes_by_user = Counter[int]()
    for caller, n_bytes in bytes_by_caller.items():
        bytes_by_user[caller.user] += n_bytes
    of_users = defaultdict[int, list[_Queue]](list)
    for caller, queue in queues.items():
        of_users[caller.user].append((bytes_by_caller[caller], queue))
    users = [
        (bytes_by_user[user], [*_from_largest(own)]) for user, own in of_users.items()
    ]
    evicted = list[PendingOutput]()
    for _, output in _from_largest(users):
        evicted.append(output)
        n_over -= output.n_bytes
        if n_over <= 0:
            break
    return evicted


def _from_largest(queues: Iterable[_Queue]) -> Iterator[_Numbered]:
    """Yield outputs: the first of the queue with the most bytes, of equals the oldest.

    Args:
        queues: each with the bytes that it counts as now; none is empty.
    """
    largest = [(-n_bytes, queue[0][0], deque(queue)) for n_bytes, queue in queues]
    heapify(largest)
    while largest:
        negative_bytes, _, queue = largest[0]
        position, output = queue.popleft()
        yield position, output
        if queue:
            n_left = negative_bytes + output.n_bytes
            heapreplace(largest, (n_left, queue[0][0], queue))
        else:
            heappop(largest)
