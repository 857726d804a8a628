"""The words of messages: looked up, and kept in SQLite's own index."""

from collections.abc import Sequence

from sqlalchemy import Connection, Select, select, text

from inferd.chats.failures import ChatError, ChatFault
from inferd.chats.records import SearchHit
from inferd.chats.storage.erasure import note_deletion
from inferd.chats.storage.tables import CHATS, MESSAGES
from inferd.limits.bridge import MAX_SEARCH_CHARS, MAX_SEARCH_WORDS


def words_of(query: str) -> Sequence[str]:
    """Return the words of a search, without what is none.

    Raises:
        ChatError: there are none, or too many.
    """
    kept = "".join(char if char.isalnum() else " " for char in query)
    words = kept.split()
    if not words or len(query) > MAX_SEARCH_CHARS or len(words) > MAX_SEARCH_WORDS:
        raise ChatError(
            ChatFault.INVALID,
            f"q: 1 to {MAX_SEARCH_WORDS} words in {MAX_SEARCH_CHARS} characters",
            "q",
        )
    return words


def search(
    connection: Connection, owner: str, query: str, n_most: int
) -> Sequence[SearchHit]:
    """Find the newest messages of an owner in which all words begin.

    Raises:
        ChatError: the query has no words.
    """
    found = _matching(connection, words_of(query))
    found = found.where(CHATS.c.owner == owner, MESSAGES.c.state.notin_(_RUNNING))
    rows = connection.execute(found.order_by(MESSAGES.c.number.desc()).limit(n_most))
    return [
        SearchHit(
            chat_id=row.chat_id,
            message_id=row.id,
            title=row.title,
            text=row.text,
            created_us=row.created_us,
        )
        for row in rows
    ]


_RUNNING = ("pending", "in_progress")


def _matching(
    connection: Connection, words: Sequence[str]
) -> Select[tuple[str, str, str, int, str | None]]:
    columns = MESSAGES.c
    found = select(
        columns.id, columns.chat_id, columns.text, columns.created_us, CHATS.c.title
    ).join(CHATS, CHATS.c.id == columns.chat_id)
    if connection.dialect.name == "sqlite":
        query = " ".join(f'"{word}"*' for word in words)
        inside = text(
            "messages.number IN (SELECT rowid FROM message_search "
            "WHERE message_search MATCH :query)"
        )
    else:
        query = " & ".join(f"{word}:*" for word in words)
        inside = text(
            "to_tsvector('simple', left(messages.text, 200000)) "
            "@@ to_tsquery('simple', :query)"
        )
    return found.where(inside.bindparams(query=query))


def index_messages(connection: Connection, ids: Sequence[str]) -> None:
    """Add finished messages to SQLite's index; PostgreSQL's follows by itself."""
    if connection.dialect.name != "sqlite" or not ids:
        return
    connection.execute(
        text(
            "INSERT OR REPLACE INTO message_search (rowid, text) "
            "SELECT number, text FROM messages WHERE id = :id"
        ),
        [{"id": each} for each in ids],
    )


def forget_chat(connection: Connection, chat_id: str) -> None:
    """Take the messages of a chat out of SQLite's index.

    Their words leave the disk by ``erase_words``, as deleted rows stay in the index until its
    parts are merged.
    """
    if connection.dialect.name != "sqlite":
        return
    connection.execute(
        text(
            "DELETE FROM message_search WHERE rowid IN "
            "(SELECT number FROM messages WHERE chat_id = :id)"
        ),
        {"id": chat_id},
    )
    note_deletion(connection)
