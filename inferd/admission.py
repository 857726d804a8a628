"""Who runs now, who waits, and who is turned away.

One gate for all sockets. It counts and decides; it knows no tasks and no clocks. The
shell calls ``arrive`` once for each request and ``leave`` once, whatever ended it.
"""

from collections import OrderedDict

from inferd.errors import DrainingError, QueueFullError


class Admission:
    """A gate with ``max_active`` permits and ``max_queued`` places to wait.

    Laws (held by property tests): active ≤ ``max_active``; waiting ≤ ``max_queued``;
    nobody waits while a permit is free; those who wait start in the order they came;
    after everybody left, every permit is free.
    """

    def __init__(self, *, max_active: int, max_queued: int) -> None:
        self._max_active = max_active
        self._max_queued = max_queued
        self._active: set[int] = set()
        self._waiting: OrderedDict[int, None] = OrderedDict()
        self._is_open = True

    @property
    def active(self) -> int:
        """Requests that hold a permit."""
        return len(self._active)

    @property
    def waiting(self) -> int:
        """Requests that wait for one."""
        return len(self._waiting)

    def arrive(self, ticket: int) -> bool:
        """Let a request in: true if it runs now, false if it waits.

        Args:
            ticket: a number no other present request has.

        Raises:
            QueueFullError: it has to go, at once.
            DrainingError: the gate is closed.
        """
        if not self._is_open:
            raise DrainingError
        if len(self._active) < self._max_active:
            self._active.add(ticket)
            return True
        if len(self._waiting) < self._max_queued:
            self._waiting[ticket] = None
            return False
        raise QueueFullError

    def leave(self, ticket: int) -> int | None:
        """Take a request out; give the ticket of the one that runs instead, if any.

        Leaving twice, or without having arrived, changes nothing.
        """
        self._waiting.pop(ticket, None)
        if ticket not in self._active:
            return None
        self._active.remove(ticket)
        if not self._waiting:
            return None
        successor, _ = self._waiting.popitem(last=False)
        self._active.add(successor)
        return successor

    def close(self) -> None:
        """Turn every later arrival away; those inside go on."""
        self._is_open = False
