"""The blocking client."""

import math
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from inferd.client.admin import AdminExchange, StatusStream
from inferd.client.closing import ClosedOnLeaving
from inferd.client.connection.sync import SyncConnection, connect
from inferd.client.discovery import NoDaemonError, backoff
from inferd.client.exchange import (
    ClientError,
    ConnectionLostError,
    ProtocolError,
    with_options,
)
from inferd.client.frames import BlocksAnswer, TextAnswer
from inferd.client.peer_check import UntrustedServerError
from inferd.client.surfaces import BLOCKS, EMBED, RERANK, TEXT
from inferd.limits.connections import READ_BYTES
from inferd.surfaces import ADMIN
from inferd.wire.blocks import BlocksRequest
from inferd.wire.commands import Command, Reply
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from inferd.wire.responses import EmbeddingsFrame, RerankFrame
from inferd.wire.status import AnyStatus

__all__ = [
    "READY",
    "ExchangeBounds",
    "FrameClient",
    "command",
    "connect",
    "wait_until_ready",
    "watch_status",
]

READY = "ready"
STATUS_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the frames of one status at most: a backend takes some hundred. F-44."""


class ExchangeBounds(NamedTuple):
    """What an exchange takes at most, whatever comes from the other end."""

    seconds: float
    """From the connection to the last frame that is wanted."""
    n_bytes: int = STATUS_BYTES
    """That are received."""


class FrameClient(ClosedOnLeaving):
    """FrameClient for a daemon's inference sockets; one request at a time on each.

    It connects to a socket when that is first needed, and reconnects after an answer that
    was not read to its end. Methods raise:

    - ``NoDaemonError``: nothing accepts connections there.
    - ``UntrustedServerError``: the server's uid is not trusted; nothing was sent.
    - ``RequestFailedError``: the daemon ended the request with an error frame.
    - ``ConnectionLostError``: the connection ended before the answer did.
    - ``ProtocolError``: a received frame is not an answer to the request.
    - ``ClientError``, the base class of all but the first: the request cannot be sent, the
      client is closed, or an answer on that socket is still being read.

    An answer that is not read to its end is aborted: its request is cancelled by closing
    the connection. The same happens when its iterator is closed or garbage-collected.

    Args:
        directory: of the sockets; ``None`` for the default ones.
        timeout_s: seconds without data after which a call raises ``TimeoutError``.
        trusted_uids: users whose processes may answer, besides root, this user, below
            ``/run/inferd`` the service's user, and those of ``$INFERD_TRUST_UID``.

    Ownership: ``close`` it, or use it in a ``with`` block; closing cancels requests.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        timeout_s: float | None = None,
        trusted_uids: Collection[int] = (),
    ) -> None:
        options = (directory, timeout_s, trusted_uids)
        self._text = SyncConnection(TEXT, *options)
        self._blocks = SyncConnection(BLOCKS, *options)
        self._embed = SyncConnection(EMBED, *options)
        self._rerank = SyncConnection(RERANK, *options)
        self._all = (self._text, self._blocks, self._embed, self._rerank)

    def close(self) -> None:
        """Close every connection, for good."""
        for connection in self._all:
            connection.close()

    def generate(
        self,
        request: GenerateRequest,
        *,
        model: str | None = None,
        principal: str | None = None,
    ) -> Iterator[TextAnswer]:
        """Send a v1 request and yield the frames of its answer, ``done`` last.

        With ``progress`` there are ``status`` frames among them.

        Args:
            request: to send.
            model: the name or an alias of the backend that must answer; replaces the
                request's own.
            principal: who is asking, where this user is a gateway of the daemon;
                replaces the request's own.
        """
        return self._text.ask(with_options(request, model, principal))

    def converse(
        self,
        request: BlocksRequest,
        *,
        descriptors: Sequence[int] = (),
        sound: Iterable[bytes] | None = None,
        model: str | None = None,
        principal: str | None = None,
    ) -> Iterator[BlocksAnswer]:
        """Send a v2 request and yield the frames of its answer, ``done`` last.

        Args:
            request: its attachments may be ``open``, or have an ``fd``.
            descriptors: of sealed memfds; an attachment's ``fd`` is an index into them.
                Keep them open until the first frame has come.
            sound: audio of the open attachment, in blocks of whole samples. A block is
                sent once the last one is, so no faster than the daemon reads. Frames are
                read between blocks: yield an empty block while no samples are available.
            model: as for ``generate``.
            principal: as for ``generate``.
        """
        return self._blocks.ask(
            with_options(request, model, principal), descriptors, sound
        )

    def embed(
        self,
        request: EmbedRequest,
        *,
        model: str | None = None,
        principal: str | None = None,
    ) -> EmbeddingsFrame:
        """Compute the embeddings of texts; ``embeddings_of`` decodes them.

        Args:
            request: to send.
            model: as for ``generate``.
            principal: as for ``generate``.
        """
        [frame] = self._embed.ask(with_options(request, model, principal))
        return frame

    def rerank(
        self,
        request: RerankRequest,
        *,
        model: str | None = None,
        principal: str | None = None,
    ) -> RerankFrame:
        """Sort documents by relevance to a query.

        Args:
            request: to send.
            model: as for ``generate``.
            principal: as for ``generate``.
        """
        [frame] = self._rerank.ask(with_options(request, model, principal))
        return frame

    def cancel(self, request_id: str) -> bool:
        """Cancel a request that another thread waits for.

        A generated answer then ends with ``done`` and the stop reason ``cancelled``; any
        other with a ``RequestFailedError`` of that code.

        Returns:
            Whether such a request was in progress; it may have ended meanwhile.
        """
        n_sent = sum(connection.cancel(request_id) for connection in self._all)
        return n_sent > 0


def _send(sock: socket.socket, data: bytes) -> None:
    with suppress(ConnectionError):  # its last frames can still be read
        sock.sendall(data)


def _read(sock: socket.socket) -> bytes:
    try:
        return sock.recv(READ_BYTES)
    except ConnectionError as error:
        raise ConnectionLostError(str(error)) from error


def watch_status(
    directory: Path | None = None,
    *,
    timeout_s: float | None = None,
    bounds: ExchangeBounds | None = None,
    trusted_uids: Collection[int] = (),
) -> Iterator[tuple[bytes, AnyStatus]]:
    """Yield each status frame, as bytes and decoded, until the connection ends.

    Args:
        directory: of the sockets; ``None`` for the default ones.
        timeout_s: seconds without data before ``TimeoutError``.
        bounds: of the whole exchange; ``None`` to watch for as long as the daemon runs.
        trusted_uids: users whose processes may answer, as for ``FrameClient``.

    Raises:
        NoDaemonError: nothing accepts connections there.
        UntrustedServerError: the server's uid is not trusted.
        ProtocolError: the server does not speak this protocol, refused access, or sent
            more than ``bounds`` allow.
        TimeoutError: no data for ``timeout_s`` seconds, or ``bounds`` are over.
    """
    reader = _Reader(timeout_s, bounds)
    with connect(
        ADMIN.socket,
        directory,
        trusted_uids=trusted_uids,
        timeout_s=None if bounds is None else bounds.seconds,
    ) as sock:
        frames = StatusStream()
        while data := reader.read(sock):
            yield from frames.feed(data)


class _Reader:
    """Receives what comes, within bounds that begin now.

    Args:
        timeout_s: seconds without data; ``None`` for any time.
        bounds: of everything; ``None`` for none.
    """

    def __init__(self, timeout_s: float | None, bounds: ExchangeBounds | None) -> None:
        self._timeout_s = math.inf if timeout_s is None else timeout_s
        seconds, n_bytes = (math.inf, math.inf) if bounds is None else bounds
        self._n_left = n_bytes
        self._deadline = time.monotonic() + seconds

    def read(self, sock: socket.socket) -> bytes:
        """Receive some bytes; none at the end.

        Raises:
            TimeoutError: none came in time.
            ProtocolError: too many have come.
        """
        left_s = min(self._timeout_s, self._deadline - time.monotonic())
        if left_s <= 0:
            raise TimeoutError("the time for the answer is over")
        sock.settimeout(None if left_s == math.inf else left_s)
        data = sock.recv(READ_BYTES)
        self._n_left -= len(data)
        if self._n_left < 0:
            raise ProtocolError("more bytes than a status has")
        return data


def command(
    order: Command,
    directory: Path | None = None,
    *,
    timeout_s: float | None = None,
    trusted_uids: Collection[int] = (),
) -> Reply:
    """Send a command to the admin socket and return the reply, ``ok`` or not.

    Raises:
        NoDaemonError: nothing accepts connections there.
        ClientError: the connection ended before the reply, the server's uid is not
            trusted, or it does not speak this protocol.
        TimeoutError: no data for ``timeout_s`` seconds.
    """
    exchange = AdminExchange(order)
    with connect(ADMIN.socket, directory, trusted_uids=trusted_uids) as sock:
        sock.settimeout(timeout_s)
        _send(sock, exchange.line)
        while (reply := exchange.feed(_read(sock))) is None:
            pass
        return reply


def wait_until_ready(
    directory: Path | None = None,
    *,
    timeout_s: float,
    trusted_uids: Collection[int] = (),
    on_status: Callable[[AnyStatus], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Wait for a daemon that is starting.

    Args:
        directory: of its sockets, which may not exist yet.
        timeout_s: seconds to wait at most.
        trusted_uids: users whose processes may answer, as for ``FrameClient``.
        on_status: called with every status.
        should_stop: polled; returns whether waiting has become pointless.

    Raises:
        NoDaemonError: it was not ready in time, or ``should_stop`` returned True.
        UntrustedServerError: the server's uid is not trusted.
    """
    deadline = time.monotonic() + timeout_s
    for pause in backoff():
        last = "the daemon closed the admin socket"
        try:
            for _, status in watch_status(
                directory, timeout_s=timeout_s, trusted_uids=trusted_uids
            ):
                on_status(status)
                if status.status == READY:
                    return
                if time.monotonic() > deadline:
                    last = f"the daemon is still {status.status}"
                    break
        except UntrustedServerError:
            raise
        except (OSError, NoDaemonError, ClientError) as error:
            last = str(error)
        if should_stop() or time.monotonic() > deadline:
            raise NoDaemonError(last)
        time.sleep(pause)
