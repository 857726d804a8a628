"""Copies of an SQLite database: made while it is used, and put in its place while it is not."""

import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from inferd.chats.failures import ChatError, ChatFault
from inferd.chats.storage.database import ChatDatabase, DatabasePlace
from inferd.chats.storage.failures import telling_failures
from inferd.chats.storage.runner_file import FILE_NAME, held_name
from inferd.trusted_path import UntrustedError

_LEFT: Final = ("-wal", "-shm")
"""Endings of the files that SQLite has beside a database."""


def back_up(place: DatabasePlace, target: Path) -> None:
    """Write a copy of the database into a new file, for this user alone.

    Raises:
        ChatError: the file is there already, the database is no file, or cannot be read.
    """
    file = _file_of(place)
    if not file.is_file():
        raise ChatError(ChatFault.GONE, f"{file}: there are no chats")
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise ChatError(ChatFault.GONE, f"{target}: {error.strerror}") from error
    with _telling(), closing(sqlite3.connect(file)) as source:
        source.execute("VACUUM INTO ?", (str(target),))
    _sync(target)


def restore(place: DatabasePlace, source: Path) -> None:
    """Put a copy in the place of the database, of which nothing is left.

    Args:
        place: of the database.
        source: the copy.

    Raises:
        ChatError: a bridge runs, or the copy is none, or of a newer schema.
    """
    file = _file_of(place)
    with _without_bridge(file.parent):
        scratch = file.with_name(f".{file.name}.restored")
        try:
            _copy(source, scratch)
            copied = DatabasePlace(place.url.set(database=str(scratch)))
            ChatDatabase(copied).close()
            for ending in _LEFT:
                file.with_name(file.name + ending).unlink(missing_ok=True)
            scratch.replace(file)
        finally:
            for ending in ("", *_LEFT):
                scratch.with_name(scratch.name + ending).unlink(missing_ok=True)


def _copy(source: Path, scratch: Path) -> None:
    try:
        scratch.unlink(missing_ok=True)
        os.close(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        shutil.copyfile(source, scratch)
    except OSError as error:
        raise ChatError(ChatFault.GONE, f"{source}: {error.strerror}") from error
    with _telling(), closing(sqlite3.connect(scratch)) as copy:
        found = copy.execute("PRAGMA quick_check").fetchone()
        has_chats = copy.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'chats'"
        ).fetchone()
    if found != ("ok",) or has_chats != (1,):
        raise ChatError(ChatFault.GONE, f"{source}: is no copy of chats")
    _sync(scratch)


@contextmanager
def _without_bridge(state: Path) -> Iterator[None]:
    """Hold what a bridge of this directory would hold.

    Raises:
        ChatError: one runs.
    """
    try:
        new_name = secrets.token_hex(16)
        with held_name(state, new_name) as name:
            if name == new_name and _is_held(state, name):
                raise ChatError(ChatFault.LOCKED, "the bridge runs: stop it first")
            yield
    except (UntrustedError, OSError) as error:
        raise ChatError(ChatFault.GONE, f"{state}: {error}") from error


def _is_held(state: Path, name: str) -> bool:
    """Tell whether another process holds a name, which is in the file then."""
    return (state / FILE_NAME).read_bytes() != name.encode()


def _file_of(place: DatabasePlace) -> Path:
    if place.file is None:
        raise ChatError(
            ChatFault.GONE,
            "a PostgreSQL database is copied with pg_dump and pg_restore",
        )
    return place.file


@contextmanager
def _telling() -> Iterator[None]:
    with telling_failures():
        try:
            yield
        except sqlite3.Error as error:
            raise ChatError(
                ChatFault.GONE, f"the database of chats cannot be read: {error}"
            ) from error


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
