"""A blocking connection of a client: made when it is needed, given up when it broke."""

import socket
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from inferd.client.discovery import nobody_at, socket_paths
from inferd.client.duplex import Duplex
from inferd.client.exchange import ClientError, Exchange, Surface, check_sound
from inferd.client.frames import Answer
from inferd.client.trust import Trust, UntrustedServerError
from inferd.wire.codec import Request

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=Answer)


def connect(
    leaf: str, directory: Path | None = None, *, trusted_uids: Collection[int] = ()
) -> socket.socket:
    """Connect to a socket of the daemon, if somebody listens whom we trust.

    Args:
        leaf: the socket's name.
        directory: where it is; by default, where a daemon would put it.
        trusted_uids: who may listen besides root, this user and the service.

    Raises:
        NoDaemonError: there is none, it is not ours to use, or nobody listens.
        UntrustedServerError: somebody else listens, or could put a socket there.
    """
    tried: dict[Path, OSError | UntrustedServerError] = {}
    for path in socket_paths(leaf, directory):
        try:
            return _connect(Trust.at(path, trusted_uids))
        except (OSError, UntrustedServerError) as error:
            tried[path] = error
    raise nobody_at(tried)


def _connect(trust: Trust) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with trust.held() as way:
            sock.connect(way)
        trust.check_server(sock)
    except BaseException:
        sock.close()
        raise
    return sock


class Connection(Generic[Q, A]):
    """What a client has of one socket: a connection at most.

    Args:
        surface: what is asked there.
        directory: where the socket is; by default, where a daemon would put it.
        timeout_s: seconds of silence before ``TimeoutError``.
        trusted_uids: as ``connect`` has it.

    Ownership: one thread at a time asks; any may cancel or close.
    """

    def __init__(
        self,
        surface: Surface[Q, A],
        directory: Path | None,
        timeout_s: float | None,
        trusted_uids: Collection[int],
    ) -> None:
        self._surface = surface
        self._directory = directory
        self._timeout_s = timeout_s
        self._trusted_uids = trusted_uids
        self._exchange = Exchange(surface)
        self._duplex: Duplex | None = None
        self._is_closed = False
        self._sending = threading.Lock()  # a cancel must not come before its request

    def ask(
        self,
        request: Q,
        descriptors: Sequence[int] = (),
        sound: Iterable[bytes] | None = None,
    ) -> Iterator[A]:
        """Send a request; give the frames of its answer.

        Whatever ends this before the terminal frame ends the connection.
        """
        check_sound(request, is_given=sound is not None)
        with self._sending:
            duplex, exchange = self._usable(), self._exchange
            line = exchange.start(request)
            try:
                duplex.put(line, descriptors)
            except BaseException:
                self._give_up(duplex)
                raise
        try:
            yield from _answer(duplex, exchange, sound)
        finally:
            if not exchange.is_over:
                self._give_up(duplex)

    def cancel(self, request_id: str) -> bool:
        """Cancel the request, if it is under way; tell whether it is."""
        with self._sending:
            duplex, line = self._duplex, self._exchange.cancel(request_id)
            if duplex is None or line is None:
                return False
            duplex.put(line)
        duplex.flush()
        return True

    def close(self) -> None:
        """Close it for good."""
        self._is_closed = True
        if (duplex := self._duplex) is not None:
            self._give_up(duplex)

    def _usable(self) -> Duplex:
        if self._is_closed:
            raise ClientError("the client is closed")
        if self._duplex is None:
            sock = connect(
                self._surface.socket, self._directory, trusted_uids=self._trusted_uids
            )
            self._exchange = Exchange(self._surface)
            self._duplex = Duplex(sock, self._timeout_s)
        return self._duplex

    def _give_up(self, duplex: Duplex) -> None:
        """Close a connection, without the lock: a collected iterator comes here, too."""
        if self._duplex is duplex:
            self._duplex = None
        duplex.close()


def _answer(
    duplex: Duplex, exchange: Exchange[Q, A], sound: Iterable[bytes] | None
) -> Iterator[A]:
    """Read the answer, and send sound meanwhile."""
    lines = iter(()) if sound is None else _lines(exchange, sound)
    while not exchange.is_over:
        if (frame := exchange.next_frame()) is not None:
            yield frame
            continue
        line = next(lines, None) if duplex.has_sent else None
        if line:
            duplex.put(line)
        data = duplex.read(waits=line is None)
        if data is not None:
            exchange.feed(data)


def _lines(exchange: Exchange[Q, A], sound: Iterable[bytes]) -> Iterator[bytes]:
    for block in sound:
        yield exchange.append(block) if block else b""
    yield exchange.append(b"", is_last=True)
