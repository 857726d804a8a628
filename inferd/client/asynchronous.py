"""The client on trio."""

from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from inferd.client.admin import Order, StatusStream
from inferd.client.awaiting import Connection, connect, read, send
from inferd.client.frames import BlocksAnswer, TextAnswer
from inferd.client.surfaces import BLOCKS, EMBED, RERANK, TEXT
from inferd.paths import ADMIN_SOCKET
from inferd.wire.blocks import BlocksRequest
from inferd.wire.commands import Command, Reply
from inferd.wire.requests import EmbedRequest, GenerateRequest, RerankRequest
from inferd.wire.responses import EmbeddingsFrame, RerankFrame
from inferd.wire.status import AnyStatus

__all__ = ["AsyncClient", "command", "connect", "watch_status"]


class AsyncClient:
    """A daemon's inference sockets, as ``sync.Client`` has them.

    Requests on different sockets may run side by side, each in a task.

    Args:
        directory: where the sockets are; by default, where a daemon would put them.
        trusted_uids: whose processes may answer, as ``sync.Client`` has it.

    Cancellation: of any method: the request that is under way on that socket is given up
    by closing its connection; the next one connects anew. So it is when the iterator of
    an answer is closed before its end: use ``contextlib.aclosing`` to leave it early.

    Ownership: use it in an ``async with`` block; leaving closes the connections and
    cancels requests.
    """

    def __init__(
        self, directory: Path | None = None, *, trusted_uids: Collection[int] = ()
    ) -> None:
        self._text = Connection(TEXT, directory, trusted_uids)
        self._blocks = Connection(BLOCKS, directory, trusted_uids)
        self._embed = Connection(EMBED, directory, trusted_uids)
        self._rerank = Connection(RERANK, directory, trusted_uids)
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
        """Close every connection."""
        for connection in self._all:
            connection.close()

    def generate(self, request: GenerateRequest) -> AsyncIterator[TextAnswer]:
        """Have a v1 request answered; give its frames as they come, ``done`` last.

        There are ``status`` frames among them if ``progress`` was asked for.
        """
        return self._text.ask(request)

    def converse(
        self, request: BlocksRequest, *, descriptors: Sequence[int] = ()
    ) -> AsyncIterator[BlocksAnswer]:
        """Have a v2 request answered, as ``generate`` does with one of v1.

        Args:
            request: its attachments may be ``open``, for ``append``, or have an ``fd``.
            descriptors: of sealed memory, which these ``fd`` count, from 0 on; keep them
                open until the first frame has come.
        """
        return self._blocks.ask(request, descriptors)

    async def append(
        self, request_id: str, samples: bytes, *, is_last: bool = False
    ) -> bool:
        """Add sound to a request that another task waits for, to its open attachment.

        Waits while the daemon has more than it can hear; the other task has to go on
        reading meanwhile.

        Args:
            request_id: of the request.
            samples: whole ones, as in the attachment; may be none.
            is_last: whether nothing more will come.

        Returns:
            Whether such a request was under way; it may have ended meanwhile.

        Raises:
            ClientError: none of its attachments is open.

        Cancellation: a line that was sent in part cannot be ended otherwise, so the
        request is given up, and the other task is told ``ConnectionLostError``.
        """
        return await self._blocks.append(request_id, samples, is_last=is_last)

    async def embed(self, request: EmbedRequest) -> EmbeddingsFrame:
        """Have texts turned into embeddings; ``embeddings_of`` reads them."""
        [frame] = [each async for each in self._embed.ask(request)]
        return frame

    async def rerank(self, request: RerankRequest) -> RerankFrame:
        """Have documents ordered by how well they answer a query."""
        [frame] = [each async for each in self._rerank.ask(request)]
        return frame

    async def cancel(self, request_id: str) -> bool:
        """Cancel a request that another task waits for.

        Its answer ends early: a generated one in ``done`` with ``cancelled``, any other
        in a ``RequestFailedError`` with that code.

        Returns:
            Whether such a request was under way; it may have ended meanwhile.
        """
        sent = [await connection.cancel(request_id) for connection in self._all]
        return any(sent)


async def watch_status(
    directory: Path | None = None, *, trusted_uids: Collection[int] = ()
) -> AsyncIterator[AnyStatus]:
    """Give each status of the admin socket until it ends.

    Raises:
        NoDaemonError: nobody answers.
        UntrustedServerError: somebody answers whom we do not trust.
    """
    async with await connect(
        ADMIN_SOCKET, directory, trusted_uids=trusted_uids
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
    """Send a command to the admin socket; give the reply, ``ok`` or not.

    Raises:
        NoDaemonError: nobody answers.
        UntrustedServerError: somebody answers whom we do not trust.
        ClientError: the connection ended before the reply, or what answers is no daemon.
    """
    exchange = Order(order)
    async with await connect(
        ADMIN_SOCKET, directory, trusted_uids=trusted_uids
    ) as stream:
        await send(stream, exchange.line)
        while (reply := exchange.feed(await read(stream))) is None:
            pass
        return reply
