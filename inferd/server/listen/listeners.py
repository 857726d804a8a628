"""The daemon's listening sockets: inherited from systemd, or bound and unlinked here."""

import os
import socket
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import trio

from inferd.paths import LOCK_NAME
from inferd.server.listen.acceptor import Acceptor, ListenerSpec
from inferd.server.listen.activation import listen_fds
from inferd.service.activation import (
    ActivationError,
    adopt,
    forget_passed,
    keep_from_children,
)
from inferd.service.bind import ListenError, bind, locked, make_socket_directory
from inferd.surfaces import SURFACES, Surface

InheritedSockets = Mapping[str, socket.socket]
"""Listening sockets, by their file names."""

NO_INHERITED_SOCKETS: Final[InheritedSockets] = MappingProxyType({})


@contextmanager
def inherited_sockets(
    environ: MutableMapping[str, str], surfaces: Sequence[Surface] = SURFACES
) -> Iterator[InheritedSockets]:
    """Yield the sockets that systemd passed; close our descriptors on leaving.

    Workers do not inherit them: they are set close-on-exec, and the variables are removed.

    Args:
        environ: our environment.
        surfaces: whose sockets may be passed.

    Raises:
        ListenError: a descriptor is not a listening Unix stream socket, or its name is
            unknown.
    """
    with ExitStack() as sockets:
        try:
            fds_by_leaf = listen_fds(environ, os.getpid(), surfaces)
            for fd in fds_by_leaf.values():
                keep_from_children(fd)
            adopted = {
                leaf: sockets.enter_context(
                    adopt(leaf, fd, [socket.AF_UNIX], "Unix stream")
                )
                for leaf, fd in fds_by_leaf.items()
            }
        except ActivationError as error:
            raise ListenError(str(error)) from error
        finally:
            forget_passed(environ)
        yield adopted


class Listeners:
    """The listening sockets of a daemon.

    Args:
        directory: where sockets are bound, and where the lock is.
        group: may enter the directory.
        inherited: sockets that exist already, with names, modes and owners of their own.
    """

    def __init__(
        self,
        directory: Path,
        group: str | None,
        inherited: InheritedSockets = NO_INHERITED_SOCKETS,
    ) -> None:
        self.directory = directory
        self.group = group
        """Who may use the inference sockets."""
        self._inherited = inherited

    @property
    def inherited(self) -> list[str]:
        """The file names of the inherited sockets."""
        return list(self._inherited)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other daemons out of the directory while inside.

        Raises:
            ListenError: another daemon holds the lock, or the directory is unusable.
        """
        make_socket_directory(self.directory, group=self.group)
        with locked(self.directory / LOCK_NAME):
            yield

    @contextmanager
    def open(
        self, clients: trio.Nursery, spec: ListenerSpec, acceptor: Acceptor
    ) -> Iterator[None]:
        """Accept clients on a socket while inside.

        On leaving, a socket that was bound here is unlinked, and the clients in its backlog
        are accepted; clients in the backlog of an inherited socket wait for the next
        daemon.

        Raises:
            ListenError: the socket cannot be bound.
        """
        accepting = trio.CancelScope()
        listener = self._listen(spec)
        clients.start_soon(acceptor.accept_all, listener, spec, clients, accepting)
        try:
            yield
        finally:
            accepting.cancel()
            if spec.leaf not in self._inherited:
                (self.directory / spec.leaf).unlink(missing_ok=True)
                with suppress(OSError):  # the accept loop has closed it
                    # A client that has resolved the path already gets ECONNREFUSED.
                    listener.socket.shutdown(socket.SHUT_RD)
                acceptor.accept_pending(listener, spec, clients)

    def _listen(self, spec: ListenerSpec) -> trio.SocketListener:
        if spec.leaf in self._inherited:
            sock = trio.socket.from_stdlib_socket(self._inherited[spec.leaf])
            return trio.SocketListener(sock)
        return bind(self.directory / spec.leaf, mode=spec.mode, group=spec.group)
