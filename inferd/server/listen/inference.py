"""The inference sockets of a daemon: those that are served, and those that refuse."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial

import trio

from inferd.server.connection.limit import ConnectionLimit
from inferd.server.connection.serve import AnyEndpoint
from inferd.server.listen.acceptor import (
    ListenerSpec,
    refusal_frame,
    unserved_listener,
)
from inferd.server.listen.listeners import Listeners
from inferd.surfaces import Surface

Serve = Callable[[AnyEndpoint, trio.SocketStream], Awaitable[None]]
"""Serves one client of an endpoint."""


def inference_listeners(
    served: Iterable[AnyEndpoint],
    surfaces: Sequence[Surface],
    listeners: Listeners,
    limit: ConnectionLimit,
    serve: Serve,
) -> Iterator[ListenerSpec]:
    """Yield the sockets of endpoints, which share one connection limit.

    Inherited sockets that no backend serves follow: they refuse every connection.

    Args:
        served: the endpoints.
        surfaces: those that there may be.
        listeners: with the sockets that were inherited, and the group of the others.
        limit: of their connections.
        serve: serves one client.
    """
    not_served = [each for each in surfaces if each.socket in listeners.inherited]
    for endpoint in served:
        surface = endpoint.surface
        not_served = [each for each in not_served if each != surface]
        yield ListenerSpec(
            surface,
            partial(serve, endpoint),
            limit,
            refusal_frame,
            may_use_reserve_fd=False,
            mode=surface.mode,
            group=listeners.group,
        )
    yield from map(unserved_listener, not_served)


@dataclass
class OpenSockets:
    """The inference sockets of a daemon that are open.

    Args:
        open: accepts clients on a socket while inside.
        stack: closes them.
    """

    open: Callable[[ListenerSpec], AbstractContextManager[None]]
    stack: ExitStack
    are_served: dict[str, bool] = field(init=False, default_factory=dict)
    """Whether clients are served, by file names."""

    def add(self, specs: Iterable[ListenerSpec]) -> list[str]:
        """Open those sockets that are not open yet.

        Returns:
            Those that could be served now, and refuse every client until a restart: they
            were inherited, and no backend could serve them when they were opened.
        """
        refusing: list[str] = []
        for spec in specs:
            if spec.leaf not in self.are_served:
                self.are_served[spec.leaf] = spec.is_served
                self.stack.enter_context(self.open(spec))
            elif spec.is_served and not self.are_served[spec.leaf]:
                refusing.append(spec.leaf)
        return refusing
