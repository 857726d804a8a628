"""A request that was just read: what is noted of it before anybody looks at what it asks."""

from collections.abc import Callable
from dataclasses import dataclass

import trio

from inferd.server.activity import Activity
from inferd.server.appends import appends_of
from inferd.server.custody import Parcel
from inferd.server.peer import Peer
from inferd.server.register import Register
from inferd.wire.codec import Request


@dataclass(frozen=True, slots=True)
class Beginning:
    """What the requests of one connection have in common."""

    register: Register
    peer: Peer
    socket: str
    timeout_s: Callable[[], float]
    """Seconds that a line may be waited for, as of now."""
    on_taken: Callable[[], object]
    """Called when something that was appended has been taken."""

    def of(self, request: Request, n_bytes: int, parcel: Parcel) -> Activity:
        """Enter a request into the register.

        Args:
            request: as it was read.
            n_bytes: of its line.
            parcel: what came with it, the request's from here on.
        """
        appends = appends_of(
            request, timeout_s=self.timeout_s(), on_taken=self.on_taken
        )
        activity = Activity(
            self.peer,
            self.socket,
            request.id,
            trio.current_time(),
            n_bytes,
            parcel=parcel,
            appends=appends,
        )
        self.register.enter(activity)
        return activity
