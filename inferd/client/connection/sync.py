"""A client's blocking connection, opened on demand and closed on any error."""

import socket
import struct
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from inferd.client.connection.buffered_socket import BufferedSocket
from inferd.client.discovery import no_daemon_error, socket_paths
from inferd.client.exchange import (
    ClientError,
    ClientSurface,
    ConnectionLostError,
    Exchange,
    UnreadError,
    check_sound,
)
from inferd.client.peer_check import PeerCheck, UntrustedServerError
from inferd.wire.requests import Request
from inferd.wire.responses import Response

_TIMEVAL: Final = struct.Struct("@ll")
_MICROSECONDS: Final = 1_000_000

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=Response)


def connect(
    leaf: str,
    directory: Path | None = None,
    *,
    trusted_uids: Collection[int] = (),
    timeout_s: float | None = None,
) -> socket.socket:
    """Connect to a socket of the daemon, and check that the server's uid is trusted.

    Args:
        leaf: file name of the socket.
        directory: of the socket; ``None`` for the default ones.
        trusted_uids: users that may listen, besides root, this user and the service.
        timeout_s: seconds to wait for a listener that accepts no connections; ``None`` for
            any time.

    Raises:
        NoDaemonError: there is no socket, no permission to use it, no listener, or none
            that accepts connections in time.
        UntrustedServerError: an untrusted user listens, or could bind a socket there.
    """
    tried: dict[Path, OSError | UntrustedServerError] = {}
    for path in socket_paths(leaf, directory):
        try:
            return _connect(PeerCheck.for_socket(path, trusted_uids), timeout_s)
        except (OSError, UntrustedServerError) as error:
            tried[path] = error
    raise no_daemon_error(tried)


def _connect(check: PeerCheck, timeout_s: float | None) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if timeout_s is not None:
            # with settimeout a full backlog would be an error at once
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(timeout_s))
        with check.checked_path() as path:
            sock.connect(path)
        check.check_server(sock)
    except BaseException:
        sock.close()
        raise
    return sock


def _timeval(seconds: float) -> bytes:
    """Write a time as socket options have it; 0 would be without end."""
    microseconds = max(1, int(seconds * _MICROSECONDS))
    return _TIMEVAL.pack(*divmod(microseconds, _MICROSECONDS))


class SyncConnection(Generic[Q, A]):
    """At most one connection to a socket, with its protocol state.

    Args:
        surface: the kind of requests.
        directory: of the socket; ``None`` for the default ones.
        timeout_s: seconds without data before ``TimeoutError``.
        trusted_uids: as for ``connect``.

    Ownership: one thread at a time may call ``ask``; any may call ``cancel`` or ``close``.
    """

    def __init__(
        self,
        surface: ClientSurface[Q, A],
        directory: Path | None,
        timeout_s: float | None,
        trusted_uids: Collection[int],
    ) -> None:
        self._surface = surface
        self._directory = directory
        self._timeout_s = timeout_s
        self._trusted_uids = trusted_uids
        self._exchange = Exchange(surface)
        self._socket: BufferedSocket | None = None
        self._is_closed = False
        self._sending = threading.Lock()  # a cancel must not come before its request

    def ask(
        self,
        request: Q,
        descriptors: Sequence[int] = (),
        sound: Iterable[bytes] | None = None,
    ) -> Iterator[A]:
        """Send a request and yield the frames of its answer.

        Leaving before the terminal frame, for any reason, closes the connection.
        """
        check_sound(request, is_given=sound is not None)
        with self._sending:
            sock, exchange = self._connected(), self._exchange
            line = exchange.start(request)
            try:
                sock.send_line(line, descriptors)
            except BaseException:
                self._disconnect(sock)
                raise
        try:
            yield from _answer(sock, exchange, sound)
        finally:
            if not exchange.is_done:
                self._disconnect(sock)

    def cancel(self, request_id: str) -> bool:
        """Cancel the request if it is in progress; return whether it is."""
        with self._sending:
            sock, line = self._socket, self._exchange.cancel(request_id)
            if sock is None or line is None:
                return False
            sock.send_line(line)
        sock.flush()
        return True

    def close(self) -> None:
        """Close the connection, for good."""
        self._is_closed = True
        if (sock := self._socket) is not None:
            self._disconnect(sock)

    def drop_ended(self) -> None:
        """Close the connection if the daemon has; only between requests."""
        if (sock := self._socket) is not None and sock.has_ended:
            self._disconnect(sock)

    def _connected(self) -> BufferedSocket:
        if self._is_closed:
            raise ClientError("the client is closed")
        if self._socket is None:
            sock = connect(
                self._surface.socket, self._directory, trusted_uids=self._trusted_uids
            )
            self._exchange = Exchange(self._surface)
            self._socket = BufferedSocket(sock, self._timeout_s)
        return self._socket

    def _disconnect(self, sock: BufferedSocket) -> None:
        """Close a connection, without the lock: garbage collection calls this, too."""
        if self._socket is sock:
            self._socket = None
        sock.close()


def _answer(
    sock: BufferedSocket, exchange: Exchange[Q, A], sound: Iterable[bytes] | None
) -> Iterator[A]:
    """Yield the frames of the answer, and send audio meanwhile.

    Raises:
        UnreadError: the daemon has not read all that was sent, and nothing has come.
        ConnectionLostError: the connection ended before the answer, in another way.
    """
    lines = iter(()) if sound is None else _lines(exchange, sound)
    has_begun = False
    while not exchange.is_done:
        if (frame := exchange.next_frame()) is not None:
            yield frame
            continue
        line = next(lines, None) if sock.is_flushed else None
        if line:
            sock.send_line(line)
        try:
            data = sock.read(waits=line is None)
            if data is not None:
                exchange.feed(data)
                has_begun = True
        except ConnectionLostError as error:
            if has_begun or not sock.is_unread(error):
                raise
            raise UnreadError("the daemon did not read the request") from error


def _lines(exchange: Exchange[Q, A], sound: Iterable[bytes]) -> Iterator[bytes]:
    for block in sound:
        yield exchange.append(block) if block else b""
    yield exchange.append(b"", is_last=True)
