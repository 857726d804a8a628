"""The database: opened with its schema checked, one transaction for each operation."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from inferd.chats.failures import ChatError, ChatFault
from inferd.chats.storage.failures import telling_failures
from inferd.chats.storage.schema import check_schema, is_empty, upgrade
from inferd.limits.bridge import BUSY_S, POOL_CONNECTIONS
from inferd.trusted_path import UntrustedError, open_directory

FILE_NAME: Final = "chats.db"
T = TypeVar("T")


@dataclass(frozen=True)
class DatabasePlace:
    """Where the database is."""

    url: URL

    @property
    def file(self) -> Path | None:
        """The file of an SQLite database."""
        if self.url.get_backend_name() != "sqlite":
            return None
        return Path(self.url.database or "")

    @property
    def shown(self) -> str:
        """The place without its password."""
        return self.url.render_as_string(hide_password=True)


def place_of_database(configured: str | None, directory: Path) -> DatabasePlace:
    """Return where the database is.

    Args:
        configured: a URL that begins with ``postgresql://``, or the path of a file.
        directory: of the file, if nothing is configured.

    Raises:
        ChatError: it is another URL.
    """
    if configured is None or "://" not in configured:
        path = Path(configured) if configured else directory / FILE_NAME
        return DatabasePlace(URL.create("sqlite", database=str(path)))
    try:
        url = make_url(configured)
    except ArgumentError as error:
        raise ChatError(
            ChatFault.GONE, "chats.database is no URL of a database"
        ) from error
    if url.get_backend_name() != "postgresql":
        raise ChatError(
            ChatFault.GONE,
            "chats.database is the path of a file, or begins with postgresql://",
        )
    return DatabasePlace(url.set(drivername="postgresql+psycopg"))


class ChatDatabase:
    """The database; each call is one transaction, committed before it returns.

    Args:
        place: where it is.
        checks: whether the schema must be that of this version; an empty database is given
            it.

    Raises:
        ChatError: it cannot be opened, or has another schema.
    """

    def __init__(self, place: DatabasePlace, *, checks: bool = True) -> None:
        self.place = place
        if place.file is not None:
            _make_private(place.file)
        self._engine = _engine(place)
        self._identity = _identity(place.file)
        try:
            if checks:
                self.run(_prepare)
        except BaseException:
            self.close()
            raise

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file of SQLite, which has one writer."""
        return self.place.file is not None

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def run(self, operation: Callable[[Connection], T]) -> T:
        """Run an operation in a transaction of its own; return what it returns.

        Raises:
            ChatError: the operation raised it, or the database cannot be used.
        """
        with self.transaction() as connection:
            return operation(connection)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Give a connection in a transaction, which is committed at the end.

        Raises:
            ChatError: as above.
        """
        with telling_failures():
            if _identity(self.place.file) != self._identity:
                raise ChatError(
                    ChatFault.GONE,
                    "the file of the database of chats was removed or replaced",
                )
            with self._engine.begin() as connection:
                yield connection

    def settle(self) -> bool:
        """Have what was deleted leave the log of SQLite as well; tell whether it has.

        It has not while another program reads or writes, for which this does not wait.

        Raises:
            ChatError: the database cannot be used.
        """
        if not self.is_sqlite:
            return True
        with telling_failures(), self._engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)  # noqa: S101  # the engine's
            raw.execute("PRAGMA busy_timeout = 0")
            try:
                is_busy, *_ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                raw.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
        return not is_busy


def _prepare(connection: Connection) -> None:
    if is_empty(connection):
        upgrade(connection)
    check_schema(connection)


def _make_private(path: Path) -> None:
    """Make the file and its directory, for this user alone.

    Raises:
        ChatError: it cannot be made.
    """
    try:
        os.close(open_directory(path.parent, makes=True))
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except (UntrustedError, OSError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise ChatError(
            ChatFault.GONE, f"the database of chats cannot be opened: {text}"
        ) from error


def _identity(path: Path | None) -> tuple[int, int] | None:
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


def _engine(place: DatabasePlace) -> Engine:
    if place.file is None:
        options = f"-c lock_timeout={int(BUSY_S * 1000)}"
        return create_engine(
            place.url,
            pool_size=POOL_CONNECTIONS,
            max_overflow=0,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={"connect_timeout": int(BUSY_S), "options": options},
        )
    engine = create_engine(
        place.url,
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=0,
        hide_parameters=True,
        connect_args={"timeout": BUSY_S, "check_same_thread": False},
    )
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_writing)
    return engine


def _set_up_sqlite(raw: sqlite3.Connection, _: object) -> None:
    """Have commits reach the disk, and what is deleted be overwritten."""
    raw.isolation_level = None  # transactions begin where ours do
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "secure_delete=ON",
    ):
        raw.execute(f"PRAGMA {pragma}")


def _begin_writing(connection: Connection) -> None:
    """Take the lock of the writer at once: one that is taken later may fail."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
