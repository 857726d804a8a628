"""The inference sockets of a daemon: which are open, and which of these refuse clients."""

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AbstractContextManager, ExitStack
from functools import partial

import structlog
import trio

from inferd.server.connection.limit import ConnectionLimit
from inferd.server.connection.serve import AnyEndpoint
from inferd.server.listen.acceptor import Acceptor, ListenerSpec, refusal_frame
from inferd.service.bind import ListenError

log = structlog.get_logger("daemon")

Serve = Callable[[AnyEndpoint, trio.SocketStream], Awaitable[None]]
"""Serves one client of an endpoint."""


def inference_specs(
    endpoints: Iterable[AnyEndpoint],
    limit: ConnectionLimit,
    serve: Serve,
    group: str | None,
) -> Iterator[ListenerSpec]:
    """Describe the sockets of endpoints, which share one connection limit.

    Args:
        endpoints: what answers on them.
        limit: of their connections.
        serve: serves one client.
        group: of those that are bound here.
    """
    for endpoint in endpoints:
        yield ListenerSpec(
            endpoint.surface,
            partial(serve, endpoint),
            limit,
            refusal_frame,
            may_use_reserve_fd=False,
            mode=endpoint.surface.mode,
            group=group,
        )


class InferenceSockets:
    """The inference sockets of a daemon.

    Inherited ones are open from the start, others once a backend can serve them. Each stays
    open from then on: while no backend can serve it, it refuses clients and says so, and
    connections that there are go on.

    Args:
        specs: all that there may be.
        inherited: file names of those that were inherited.
        open: accepts clients on a socket while inside; raises ``ListenError``.
        acceptor: told which refuse their clients.
        stack: closes them.
    """

    def __init__(
        self,
        specs: Iterable[ListenerSpec],
        inherited: Collection[str],
        open: Callable[[ListenerSpec], AbstractContextManager[None]],  # noqa: A002  # it is one
        acceptor: Acceptor,
        stack: ExitStack,
    ) -> None:
        self._specs = [*specs]
        self._inherited = inherited
        self._open = open
        self._acceptor = acceptor
        self._stack = stack
        self._opened: list[str] = []

    @property
    def opened(self) -> Sequence[str]:
        """File names of those that are open."""
        return self._opened

    @property
    def served(self) -> set[str]:
        """File names of those that are open and serve clients."""
        return {*self._opened} - {*self._acceptor.unserved}

    def serve(self, served: Collection[str]) -> list[str]:
        """Serve clients on some sockets, and refuse those of all others that are open.

        Args:
            served: file names of those that backends can serve.

        Returns:
            Reasons for which some could not be opened; the next call tries again.
        """
        faults: list[str] = []
        leaves = [spec.leaf for spec in self._specs]
        self._acceptor.unserved = frozenset(leaves) - frozenset(served)
        for spec in self._specs:
            is_needed = spec.leaf in served or spec.leaf in self._inherited
            if is_needed and spec.leaf not in self._opened:
                try:
                    self._stack.enter_context(self._open(spec))
                except ListenError as error:
                    faults.append(str(error))
                else:
                    self._opened.append(spec.leaf)
        return faults
