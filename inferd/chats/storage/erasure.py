"""The words of deleted messages, taken off the disk in parts that others need not wait for.

SQLite's index of words keeps those of deleted rows until all of its parts are merged into one,
which costs in proportion to the texts of all users. So it is done after the deletion, some pages
in each transaction; how far it is stands in the database, and a bridge that was killed goes on.
"""

import sqlite3
from typing import Final

from sqlalchemy import Connection

from inferd.limits.bridge import ERASED_PAGES

_DUE: Final = 1
"""Something was deleted since a merge of all began."""
_MERGING: Final = 2
"""A merge of all has begun. Both are bits of ``user_version``, which SQLite keeps for programs."""


def note_deletion(connection: Connection) -> None:
    """Have words leave the index of SQLite later."""
    _set_progress(connection, _progress(connection) | _DUE)


def erase_words(connection: Connection) -> bool:
    """Merge a part of the index of SQLite; tell whether no deleted word is left in it.

    Bounds: ``ERASED_PAGES`` are written.
    """
    progress = _progress(connection)
    if not progress:
        return True
    if progress & _MERGING:
        if not _merge(connection, ERASED_PAGES):
            progress &= ~_MERGING
    else:
        # Two parts are worth a merge: with more, one that has begun might not go on.
        _command(connection, "usermerge", 2)
        _merge(connection, -ERASED_PAGES)
        progress = _MERGING
    _set_progress(connection, progress)
    return not progress


def _merge(connection: Connection, n_pages: int) -> bool:
    """Go on merging, or begin to merge all by a negative number; tell whether that did anything."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)  # noqa: S101  # the index is SQLite's
    n_before = raw.total_changes
    _command(connection, "merge", n_pages)
    return raw.total_changes - n_before > 1  # the command counts for one


def _command(connection: Connection, name: str, value: int) -> None:
    connection.exec_driver_sql(
        "INSERT INTO message_search (message_search, rank) VALUES (?, ?)", (name, value)
    )


def _progress(connection: Connection) -> int:
    return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())


def _set_progress(connection: Connection, progress: int) -> None:
    connection.exec_driver_sql(f"PRAGMA user_version = {progress:d}")
