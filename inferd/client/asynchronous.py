"""The asynchronous client, for trio."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from inferd.client.admin import AdminExchange, StatusStream
from inferd.client.connection.asynchronous import AsyncConnection, connect, read, send
from inferd.client.exchange import with_options
from inferd.client.frames import BlocksAnswer, TextAnswer
from inferd.client.surfaces import BLOCKS, EMBED, RERANK, TEXT
from inferd.surfaces import ADMIN
from inferd.wire.blocks import BlocksRequest
from inferd.wire.commands import Command, Reply
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from inferd.wire.responses import EmbeddingsFrame, RerankFrame
from inferd.wire.status import AnyStatus

__all__ = ["AsyncFrameClient", "command", "connect", "watch_status"]


class AsyncFrameClient:
    """FrameClient for a daemon's inference sockets; the trio version of ``sync.FrameClient``.

    Requests on different sockets may run concurrently, in a task each.

    Args:
        directory: of the sockets; ``None`` for the default ones.
        trusted_uids: whose processes may answer, as for ``sync.FrameClient``.

    Cancellation: cancelling any method aborts the request in progress on that socket by
    closing its connection; the next request reconnects. Closing the iterator of an answer
    before its end does the same: use ``contextlib.aclosing`` to leave it early.

    Ownership: use it in an ``async with`` block; leaving the block closes the connections
    and so cancels requests.
    """

    def __init__(
        self, directory: Path | None = None, *, trusted_uids: Collection[int] = ()
    ) -> None:
        self._text = AsyncConnection(TEXT, directory, trusted_uids)
        self._blocks = AsyncConnection(BLOCKS, directory, trusted_uids)
        self._embed = AsyncConnection(EMBED, directory, trusted_uids)
        self._rerank = AsyncConnection(RERANK, directory, trusted_uids)
        self._all = (self._text, self._blocks, self._embed, self._rerank)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection, for good."""
        for connection in self._all:
            connection.close()

    def drop_ended(self) -> None:
        """Close the connections that the daemon has closed between requests.

        The next request on one of them would lose it; now it connects anew.
        """
        for connection in self._all:
            connection.drop_ended()

    def generate(
        self,
        request: GenerateRequest,
        *,
        model: str | None = None,
        principal: str | None = None,
    ) -> AsyncIterator[TextAnswer]:
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
        model: str | None = None,
        principal: str | None = None,
    ) -> AsyncIterator[BlocksAnswer]:
        """Send a v2 request and yield the frames of its answer, ``done`` last.

        Args:
            request: its attachments may be ``open``, for ``append``, or have an ``fd``.
            descriptors: of sealed memfds; an attachment's ``fd`` is an index into them.
                Keep them open until the first frame has come.
            model: as for ``generate``.
            principal: as for ``generate``.
        """
        return self._blocks.ask(with_options(request, model, principal), descriptors)

    def converse_batched(
        self,
        request: BlocksRequest,
        *,
        descriptors: Sequence[int] = (),
        principal: str | None = None,
    ) -> AsyncGenerator[Sequence[BlocksAnswer], None]:
        """Send a request like ``converse``; yield the frames that have come together at once.

        No frame waits for another one. A program that passes an answer on can write them with
        one system call.
        """
        asked = with_options(request, None, principal)
        return self._blocks.ask_batched(asked, descriptors)

    async def append(
        self, request_id: str, samples: bytes, *, is_last: bool = False
    ) -> bool:
        """Append audio to the open attachment of a request that another task waits for.

        Waits while the daemon has enough audio buffered; the other task has to keep
        reading meanwhile.

        Args:
            request_id: of the request.
            samples: whole samples, in the attachment's format; may be empty.
            is_last: whether this ends the audio.

        Returns:
            Whether such a request was in progress; it may have ended meanwhile.

        Raises:
            ClientError: none of its attachments is open.

        Cancellation: a partly sent line cannot be completed later, so the connection is
        closed, and the other task gets ``ConnectionLostError``.
        """
        return await self._blocks.append(request_id, samples, is_last=is_last)

    async def embed(
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
        [frame] = [
            answer
            async for answer in self._embed.ask(with_options(request, model, principal))
        ]
        return frame

    async def rerank(
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
        [frame] = [
            answer
            async for answer in self._rerank.ask(
                with_options(request, model, principal)
            )
        ]
        return frame

    async def cancel(self, request_id: str) -> bool:
        """Cancel a request that another task waits for.

        A generated answer then ends with ``done`` and the stop reason ``cancelled``; any
        other with a ``RequestFailedError`` of that code.

        Returns:
            Whether such a request was in progress; it may have ended meanwhile.
        """
        sent = [await connection.cancel(request_id) for connection in self._all]
        return any(sent)


async def watch_status(
    directory: Path | None = None, *, trusted_uids: Collection[int] = ()
) -> AsyncIterator[AnyStatus]:
    """Yield each status of the admin socket until the connection ends.

    Raises:
        NoDaemonError: nothing accepts connections there.
        UntrustedServerError: the server's uid is not trusted.
        ProtocolError: the server does not speak this protocol, or refused access.
    """
    async with await connect(
        ADMIN.socket, directory, trusted_uids=trusted_uids
    ) as stream:
        frames = StatusStream()
        async for data in stream:
            for _, status in frames.feed(data):
                yield status


async def command(
    order: Command,
    directory: Path | None = None,
    *,
    trusted_uids: Collection[int] = (),
) -> Reply:
    """Send a command to the admin socket and return the reply, ``ok`` or not.

    Raises:
        NoDaemonError: nothing accepts connections there.
        UntrustedServerError: the server's uid is not trusted.
        ClientError: the connection ended before the reply, or the server does not speak
            this protocol.
    """
    exchange = AdminExchange(order)
    async with await connect(
        ADMIN.socket, directory, trusted_uids=trusted_uids
    ) as stream:
        await send(stream, exchange.line)
        while (reply := exchange.feed(await read(stream))) is None:
            pass
        return reply
