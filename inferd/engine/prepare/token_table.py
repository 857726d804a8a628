"""The token table of a worker's model, which the worker sends once, on request."""

from collections.abc import Callable

import trio

from inferd.engine.channel.demultiplexer import WorkerDiedError
from inferd.engine.channel.validator import ProtocolViolationError
from inferd.ipc.worker import GetTokenTable, TokenTableReply


class TokenTableRequest:
    """Request for a worker's token table, sent when it is first needed.

    Args:
        send: sends the worker a message.
    """

    def __init__(self, send: Callable[[GetTokenTable], None]) -> None:
        self._send = send
        self._token_table: bytes | None = None
        self._is_requested = False
        self._is_settled = trio.Event()

    async def get(self) -> bytes:
        """Return the token table; wait for the worker to send it.

        Raises:
            WorkerDiedError: the worker is gone.
        """
        if not self._is_requested:
            self._is_requested = True
            self._send(GetTokenTable())
        await self._is_settled.wait()
        if self._token_table is None:
            raise WorkerDiedError("the worker is gone")
        return self._token_table

    def received(self, message: TokenTableReply) -> None:
        """Keep the worker's reply.

        Raises:
            ProtocolViolationError: it was not requested, or has been sent already.
        """
        if not self._is_requested or self._token_table is not None:
            raise ProtocolViolationError("a token table that was not requested")
        self._token_table = message.token_table
        self._is_settled.set()

    def worker_gone(self) -> None:
        """Wake waiting tasks: the worker is gone."""
        self._is_settled.set()
