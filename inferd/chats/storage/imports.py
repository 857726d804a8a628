"""Chats that were exported, stored at once."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, update

from inferd.chats.branches import check_parent
from inferd.chats.records import KeptChat, KeptMessage
from inferd.chats.storage.attachments import add_attachments
from inferd.chats.storage.chats import create_chat, read_chat
from inferd.chats.storage.messages import (
    MessageLimits,
    check_chars,
    check_n_messages,
    insert_messages,
    n_chars_of,
)
from inferd.chats.storage.tables import CHATS
from inferd.chats.titles import title_of


def add_imported(  # noqa: PLR0913  # what is stored, within which bounds
    connection: Connection,
    chat: KeptChat,
    imported: Sequence[KeptMessage],
    n_most: int,
    limits: MessageLimits,
    *,
    files: Mapping[str, bytes],
) -> KeptChat:
    """Store a new chat with its messages, which have ended; return it as it is then.

    Each bound of its owner is looked at once, as one transaction stores all.

    Args:
        connection: of a transaction.
        chat: the new one.
        imported: its messages, each after the one that it follows.
        n_most: chats that its owner may have.
        limits: what the owner may store.
        files: the bytes of all attachments, by their ids.

    Raises:
        ChatError: a message follows one of its own role, or a bound is reached.
    """
    by_id = {message.id: message for message in imported}
    for message in imported:
        parent = by_id[message.parent_id] if message.parent_id else None
        check_parent(parent, answers=message.role == "assistant")
    check_n_messages(len(imported), limits)
    n_chars = sum(n_chars_of(message) for message in imported)
    check_chars(connection, chat.owner, n_chars, limits)
    create_chat(connection, chat, n_most)
    if imported:
        insert_messages(connection, imported)
        add_attachments(
            connection, chat.owner, imported, files, limits.n_attached_bytes
        )
        changes = {
            "n_messages": len(imported),
            "n_chars": n_chars,
            "tail_id": imported[-1].id,
            "title": chat.title or _title_of(imported),
        }
        connection.execute(update(CHATS).where(CHATS.c.id == chat.id).values(changes))
    return read_chat(connection, chat.owner, chat.id)


def _title_of(imported: Sequence[KeptMessage]) -> str | None:
    """Return the title by the first message of the person that gives one."""
    for message in imported:
        if message.role == "prompter" and (title := title_of(message.words)):
            return title
    return None
