"""The blocking client."""

import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from inferd.client.admin import Order, StatusStream
from inferd.client.blocking import Connection, connect
from inferd.client.discovery import NoDaemonError, pauses
from inferd.client.exchange import ClientError, ConnectionLostError
from inferd.client.frames import BlocksAnswer, TextAnswer
from inferd.client.surfaces import BLOCKS, EMBED, RERANK, TEXT
from inferd.client.trust import UntrustedServerError
from inferd.limits import READ_BYTES
from inferd.paths import ADMIN_SOCKET
from inferd.wire.blocks import BlocksRequest
from inferd.wire.commands import Command, Reply
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from inferd.wire.responses import EmbeddingsFrame, RerankFrame
from inferd.wire.status import AnyStatus

__all__ = ["READY", "Client", "command", "connect", "wait_until_ready", "watch_status"]

READY = "ready"


class Client:
    """A daemon's inference sockets: of each, one request after another.

    A socket is connected to when it is first needed, and again after an answer that did
    not come to its end. What each method raises:

    - ``NoDaemonError``: nobody answers there.
    - ``UntrustedServerError``: somebody answers whom we do not trust; nothing was sent.
    - ``RequestFailedError``: the daemon ended the request with an error frame.
    - ``ConnectionLostError``: the connection ended before the answer did.
    - ``ProtocolError``: what came is no answer.
    - ``ClientError``, the base of all but the first: the request cannot be sent, the
      client is closed, or an answer on that socket is still being read.

    An answer that is not read to its end is given up: its request is cancelled by
    closing the connection. So it is when its iterator is closed or collected.

    Args:
        directory: where the sockets are; by default, where a daemon would put them.
        timeout_s: seconds of silence before a call gives up with ``TimeoutError``.
        trusted_uids: whose processes may answer, besides those of root, of this user,
            below ``/run/inferd`` of the service's user, and of ``$INFERD_TRUST_UID``.

    Ownership: ``close`` it, or use it in a ``with`` block; closing cancels requests.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        timeout_s: float | None = None,
        trusted_uids: Collection[int] = (),
    ) -> None:
        where = (directory, timeout_s, trusted_uids)
        self._text = Connection(TEXT, *where)
        self._blocks = Connection(BLOCKS, *where)
        self._embed = Connection(EMBED, *where)
        self._rerank = Connection(RERANK, *where)
        self._all = (self._text, self._blocks, self._embed, self._rerank)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._all:
            connection.close()

    def generate(self, request: GenerateRequest) -> Iterator[TextAnswer]:
        """Have a v1 request answered; give its frames as they come, ``done`` last.

        There are ``status`` frames among them if ``progress`` was asked for.
        """
        return self._text.ask(request)

    def converse(
        self,
        request: BlocksRequest,
        *,
        descriptors: Sequence[int] = (),
        sound: Iterable[bytes] | None = None,
    ) -> Iterator[BlocksAnswer]:
        """Have a v2 request answered, as ``generate`` does with one of v1.

        Args:
            request: its attachments may be ``open``, or have an ``fd``.
            descriptors: of sealed memory, which these ``fd`` count, from 0 on; keep them
                open until the first frame has come.
            sound: of the attachment that is open, in blocks of whole samples; sent as it
                comes, and no faster than the daemon hears it. Between blocks what the
                daemon says is read: give an empty one where none comes for a while.
        """
        return self._blocks.ask(request, descriptors, sound)

    def embed(self, request: EmbedRequest) -> EmbeddingsFrame:
        """Have texts turned into embeddings; ``embeddings_of`` reads them."""
        [frame] = self._embed.ask(request)
        return frame

    def rerank(self, request: RerankRequest) -> RerankFrame:
        """Have documents ordered by how well they answer a query."""
        [frame] = self._rerank.ask(request)
        return frame

    def cancel(self, request_id: str) -> bool:
        """Cancel a request that another thread waits for.

        Its answer ends early: a generated one in ``done`` with ``cancelled``, any other
        in a ``RequestFailedError`` with that code.

        Returns:
            Whether such a request was under way; it may have ended meanwhile.
        """
        n_sent = sum(connection.cancel(request_id) for connection in self._all)
        return n_sent > 0


def _send(sock: socket.socket, data: bytes) -> None:
    with suppress(ConnectionError):  # the daemon's last words may still be there
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
    trusted_uids: Collection[int] = (),
) -> Iterator[tuple[bytes, AnyStatus]]:
    """Give each frame of the admin socket, as bytes and as read, until it ends.

    Raises:
        NoDaemonError: nobody answers.
        UntrustedServerError: somebody answers whom we do not trust.
        ProtocolError: what answers is no daemon.
        TimeoutError: ``timeout_s`` seconds of silence.
    """
    with connect(ADMIN_SOCKET, directory, trusted_uids=trusted_uids) as sock:
        sock.settimeout(timeout_s)
        frames = StatusStream()
        while data := sock.recv(READ_BYTES):
            yield from frames.feed(data)


def command(
    order: Command,
    directory: Path | None = None,
    *,
    timeout_s: float | None = None,
    trusted_uids: Collection[int] = (),
) -> Reply:
    """Send a command to the admin socket; give the reply, ``ok`` or not.

    Raises:
        NoDaemonError: nobody answers.
        ClientError: the connection ended before the reply, or what answers is no daemon.
        TimeoutError: ``timeout_s`` seconds of silence.
    """
    exchange = Order(order)
    with connect(ADMIN_SOCKET, directory, trusted_uids=trusted_uids) as sock:
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
    is_hopeless: Callable[[], bool] = lambda: False,
) -> None:
    """Wait for a daemon that is starting.

    Args:
        directory: where its sockets are or will be.
        timeout_s: seconds after which to give up.
        trusted_uids: who may answer besides root, this user and the service.
        on_status: told every status on the way.
        is_hopeless: asked now and then whether to give up.

    Raises:
        NoDaemonError: it was not ready in time, or there is no hope.
        UntrustedServerError: somebody answers whom we do not trust.
    """
    deadline = time.monotonic() + timeout_s
    for pause in pauses():
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
        if is_hopeless() or time.monotonic() > deadline:
            raise NoDaemonError(last)
        time.sleep(pause)
