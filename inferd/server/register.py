"""Every request that is here, and the count of those that were."""

from collections.abc import Iterator
from contextlib import contextmanager

from inferd.server.activity import Activity
from inferd.server.metrics import Metrics


class Register:
    """Knows the requests that wait or run, on all sockets."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._present: dict[Activity, None] = {}

    def __iter__(self) -> Iterator[Activity]:
        """Go through them in the order they arrived."""
        return iter(self._present)

    @contextmanager
    def present(self, activity: Activity) -> Iterator[None]:
        """Keep a request on the register while inside."""
        self._present[activity] = None
        try:
            yield
        finally:
            del self._present[activity]
            self._metrics.count(activity)

    def cancel(self, request_id: str, *, uid: int | None) -> int:
        """Cancel the requests of an id; give how many there were.

        Args:
            request_id: as the client chose it.
            uid: whose requests may be meant; ``None`` for anybody's.
        """
        meant = [
            each
            for each in self._present
            if each.request_id == request_id and uid in (None, each.peer.uid)
        ]
        for each in meant:
            each.cancel()
        return len(meant)
