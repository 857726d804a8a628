"""Every request that is here, and the count of those that were."""

from collections.abc import Iterator

from inferd.errors import PeerError
from inferd.server.activity import Activity
from inferd.server.metrics import Metrics


class Register:
    """Knows the requests that wait or run, on all sockets, from when they are read."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._present: dict[Activity, None] = {}

    def __iter__(self) -> Iterator[Activity]:
        """Go through them in the order they arrived."""
        return iter(self._present)

    def enter(self, activity: Activity) -> None:
        """Put a request on the register; it has to leave once, whatever ends it."""
        self._present[activity] = None

    def leave(self, activity: Activity) -> None:
        """Take a request off the register, and count it."""
        del self._present[activity]
        self._metrics.count(activity)

    def refuse(self, socket: str, error: PeerError) -> None:
        """Count a line that is no request."""
        self._metrics.count_refused(socket, error)

    def cancel(self, request_id: str, *, owner: int | None) -> int:
        """Cancel the requests of an id; give how many there were.

        Args:
            request_id: as the client chose it.
            owner: whose requests may be meant; ``None`` for anybody's.
        """
        meant = [
            each
            for each in self._present
            if each.request_id == request_id and owner in (None, each.peer.owner)
        ]
        for each in meant:
            each.cancel()
        return len(meant)
