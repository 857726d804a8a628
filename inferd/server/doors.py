"""The daemon's sockets: inherited from systemd, or else bound and unlinked by us."""

import os
import socket
import stat
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import trio

from inferd.engine.spawn import LISTEN_VARIABLES
from inferd.paths import LOCK_NAME
from inferd.server.activation import ActivationError, handed_over
from inferd.server.listen import ListenError, bind, locked, make_directory
from inferd.server.reception import Door, Reception

Inherited = Mapping[str, socket.socket]
"""Listening sockets to their leaves."""

NONE_INHERITED: Final[Inherited] = MappingProxyType({})


@contextmanager
def adopted(environ: MutableMapping[str, str]) -> Iterator[Inherited]:
    """Give the sockets that we were started with; on leaving, our ends are closed.

    No worker inherits them: they are closed on exec, and the variables are removed.

    Args:
        environ: our environment.

    Raises:
        ListenError: one is no listening Unix stream socket, or is not known.
    """
    try:
        found = handed_over(environ, os.getpid())
    except ActivationError as error:
        raise ListenError(str(error)) from error
    finally:
        for variable in LISTEN_VARIABLES:
            environ.pop(variable, None)
    for fd in found.values():
        _keep_from_workers(fd)
    with ExitStack() as sockets:
        yield {
            leaf: sockets.enter_context(_adopt(leaf, fd)) for leaf, fd in found.items()
        }


def _keep_from_workers(fd: int) -> None:
    try:
        os.set_inheritable(fd, False)  # noqa: FBT003  # os's own signature
    except OSError as error:
        raise ListenError(f"inherited descriptor {fd}: {error.strerror}") from error


def _adopt(leaf: str, fd: int) -> socket.socket:
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        raise ListenError(f"inherited {leaf}: descriptor {fd} is not a socket")
    sock = socket.socket(fileno=fd)
    is_unix_stream = (sock.family, sock.type) == (socket.AF_UNIX, socket.SOCK_STREAM)
    if not is_unix_stream or not sock.getsockopt(
        socket.SOL_SOCKET, socket.SO_ACCEPTCONN
    ):
        sock.close()
        raise ListenError(f"inherited {leaf}: not a listening Unix stream socket")
    sock.setblocking(False)  # noqa: FBT003  # socket's own signature
    return sock


class Doors:
    """Where clients come in.

    Args:
        directory: of the sockets that are bound, and of the lock.
        group: that may enter the directory.
        inherited: those that are there already: their names, modes and owners are
            somebody else's affair.
    """

    def __init__(
        self,
        directory: Path,
        group: str | None,
        inherited: Inherited = NONE_INHERITED,
    ) -> None:
        self.directory = directory
        self._group = group
        self._inherited = inherited

    @property
    def inherited(self) -> list[str]:
        """The leaves of the sockets that are there already."""
        return list(self._inherited)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other daemons out of the directory while inside.

        Raises:
            ListenError: another daemon is in it, or it is not fit for one.
        """
        make_directory(self.directory, group=self._group)
        with locked(self.directory / LOCK_NAME):
            yield

    @contextmanager
    def open(
        self, clients: trio.Nursery, door: Door, reception: Reception
    ) -> Iterator[None]:
        """Let clients in while inside.

        On leaving, a socket of our own is gone, and who had connected to it is let in; at
        an inherited one those who come wait for the next daemon.

        Raises:
            ListenError: the socket cannot be had.
        """
        accepting = trio.CancelScope()
        listener = self._listen(door)
        receive = reception.receive_all
        clients.start_soon(receive, listener, door, clients, accepting)
        try:
            yield
        finally:
            accepting.cancel()
            if door.leaf not in self._inherited:
                (self.directory / door.leaf).unlink(missing_ok=True)
                with suppress(OSError):  # it is closed
                    # Who had found the path, and comes only now, is refused as it connects.
                    listener.socket.shutdown(socket.SHUT_RD)
                reception.receive_waiting(listener, door, clients)

    def _listen(self, door: Door) -> trio.SocketListener:
        if door.leaf in self._inherited:
            sock = trio.socket.from_stdlib_socket(self._inherited[door.leaf])
            return trio.SocketListener(sock)
        return bind(self.directory / door.leaf, mode=door.mode, group=door.group)
