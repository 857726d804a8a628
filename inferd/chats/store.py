"""The database for programs on trio: operations run in a thread, one at a time on SQLite."""

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias, TypeVar

import trio
from sqlalchemy import Connection

from inferd.chats.failures import ChatError, ChatFault
from inferd.chats.storage.database import ChatDatabase, place_of_database
from inferd.chats.storage.erasure import erase_words
from inferd.chats.storage.runner_file import held_name
from inferd.chats.storage.runners import (
    begin_running,
    end_dead,
    end_running,
    keep_running,
)
from inferd.limits.bridge import LEASE_S, POOL_CONNECTIONS, REOPEN_S
from inferd.trusted_path import UntrustedError

T = TypeVar("T")
ChatConnection: TypeAlias = Connection
"""A connection in a transaction."""


def now_us() -> int:
    """Return the microseconds since 1970."""
    return time.time_ns() // 1000


class ChatStore:
    """Opens the database when it is first needed, and keeps it open.

    Args:
        configured: where it is; ``None`` for a file in the directory.
        directory: of that file; the name among those that generate is beside it, or here.
    """

    def __init__(self, configured: str | None, directory: Path) -> None:
        self._configured = configured
        self._directory = directory
        self._stack = ExitStack()
        self._opening = trio.Lock()
        self._database: ChatDatabase | None = None
        self._failure: ChatError | None = None
        self._tried_at = 0.0
        self._limiter = trio.CapacityLimiter(1)
        self._is_settled = False
        self.opened = trio.Event()
        """Set once the database is open."""
        self.runner = ""
        """The name under which answers are generated; empty until the database is open."""

    async def run(self, operation: Callable[[Connection], T]) -> T:
        """Run an operation in a transaction; what it returns has been committed.

        Raises:
            ChatError: the operation raised it, or the database cannot be used.

        Cancellation: waits for the operation to end.
        """
        database = await self._opened()
        return await trio.to_thread.run_sync(
            database.run, operation, limiter=self._limiter
        )

    async def settle(self) -> None:
        """Have what was deleted leave the log of SQLite, or note that it has not yet.

        Raises:
            ChatError: the database cannot be used.
        """
        database = await self._opened()
        self._is_settled = False
        self._is_settled = await trio.to_thread.run_sync(
            database.settle, limiter=self._limiter
        )

    async def erase(self) -> bool:
        """Take a part of what was deleted off the disk; tell whether more is to be done at once.

        Raises:
            ChatError: the database cannot be used.

        Bounds: as ``erase_words``.
        """
        database = await self._opened()
        if database.is_sqlite:
            if not await self.run(erase_words):
                self._is_settled = False
                return True
            if not self._is_settled:
                await self.settle()
        return False

    async def beat(self) -> None:
        """Tell other bridges that this one runs, and abort what dead ones left.

        Raises:
            ChatError: the database cannot be used.
        """

        def note(connection: Connection) -> None:
            moment = now_us()
            keep_running(connection, self.runner, moment)
            end_dead(connection, moment - int(LEASE_S * 1_000_000))

        await self.run(note)

    async def close(self) -> None:
        """Abort what is still generated under this name, and close the database."""
        if self._database is None:
            return
        try:
            await self.run(lambda connection: end_running(connection, self.runner))
        finally:
            self._database.close()
            self._database = None
            self._stack.close()

    def exists(self) -> bool:
        """Tell whether there may be chats already; a database elsewhere is looked at."""
        file = place_of_database(self._configured, self._directory).file
        return file is None or file.exists()

    async def _opened(self) -> ChatDatabase:
        async with self._opening:
            if self._database is not None:
                return self._database
            now = trio.current_time()
            if self._failure is not None and now < self._tried_at + REOPEN_S:
                raise self._failure
            try:
                self._database = await trio.to_thread.run_sync(self._open)
            except ChatError as error:
                self._failure, self._tried_at = error, now
                raise
            if not self._database.is_sqlite:
                self._limiter.total_tokens = POOL_CONNECTIONS
            self.opened.set()
            return self._database

    def _open(self) -> ChatDatabase:
        place = place_of_database(self._configured, self._directory)
        with ExitStack() as stack:
            database = ChatDatabase(place)
            stack.callback(database.close)
            try:
                beside = place.file.parent if place.file else self._directory
                name = held_name(beside, secrets.token_hex(16))
                self.runner = stack.enter_context(name)
            except (UntrustedError, OSError) as error:
                raise ChatError(
                    ChatFault.GONE, f"the directory of chats cannot be used: {error}"
                ) from error
            moment = now_us()
            database.run(
                lambda connection: begin_running(connection, self.runner, moment)
            )
            self._stack = stack.pop_all()
        return database
