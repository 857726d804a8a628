"""Chats in the database: made, listed, changed and deleted, each for its owner alone."""

from collections.abc import Mapping, Sequence

import msgspec
from sqlalchemy import (
    Connection,
    Row,
    Select,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)

from inferd.chats.failures import ChatError, ChatFault, no_chat
from inferd.chats.records import KeptChat, OwnSettings
from inferd.chats.storage.search import forget_chat
from inferd.chats.storage.tables import CHATS, MESSAGES

ChatRow = Row[tuple[str, str, int, int, str | None, bool, str | None, str, int, int]]


def create_chat(connection: Connection, chat: KeptChat, n_most: int) -> KeptChat:
    """Store a chat without messages.

    Args:
        connection: of a transaction.
        chat: the new one.
        n_most: chats that its owner may have.

    Raises:
        ChatError: the owner has as many already.
    """
    mine = select(func.count()).select_from(CHATS).where(CHATS.c.owner == chat.owner)
    if connection.execute(mine).scalar_one() >= n_most:
        raise ChatError(
            ChatFault.LIMIT, f"you have {n_most} chats; delete some", "chats"
        )
    connection.execute(
        insert(CHATS).values(
            id=chat.id,
            owner=chat.owner,
            created_us=chat.created_us,
            modified_us=chat.modified_us,
            title=chat.title,
            is_hidden=chat.is_hidden,
            tail_id=chat.tail_id,
            settings=msgspec.json.encode(chat.settings).decode(),
            n_messages=0,
            n_chars=0,
        )
    )
    return chat


def chat_row(
    connection: Connection, owner: str, chat_id: str, *, locks: bool = False
) -> ChatRow:
    """Return the row of a chat.

    Args:
        connection: of a transaction.
        owner: whose it must be.
        chat_id: its id.
        locks: whether nobody else may change it before the end of the transaction.

    Raises:
        ChatError: there is none, or it is somebody else's.
    """
    found = select(CHATS).where(CHATS.c.id == chat_id, CHATS.c.owner == owner)
    row = connection.execute(found.with_for_update() if locks else found).one_or_none()
    if row is None:
        raise no_chat()
    return row


def read_chat(connection: Connection, owner: str, chat_id: str) -> KeptChat:
    """Return a chat; raises as ``chat_row``."""
    return _chat(chat_row(connection, owner, chat_id))


def list_chats(  # noqa: PLR0913  # what a page is chosen by
    connection: Connection,
    owner: str,
    n_most: int,
    *,
    includes_hidden: bool = False,
    after: tuple[int, str] | None = None,
    before: tuple[int, str] | None = None,
) -> Sequence[KeptChat]:
    """Return a page of an owner's chats, newest change first.

    Args:
        connection: of a transaction.
        owner: whose.
        n_most: chats of the page.
        includes_hidden: whether hidden ones are listed, too.
        after: change and id of the last chat of the page before.
        before: instead, of the first chat of the page behind.
    """
    order = tuple_(CHATS.c.modified_us, CHATS.c.id)
    found: Select[tuple[object, ...]] = select(CHATS).where(CHATS.c.owner == owner)
    if not includes_hidden:
        found = found.where(CHATS.c.is_hidden.is_(False))
    if before is not None:
        found = found.where(order > before)
        found = found.order_by(CHATS.c.modified_us, CHATS.c.id)
    else:
        if after is not None:
            found = found.where(order < after)
        found = found.order_by(CHATS.c.modified_us.desc(), CHATS.c.id.desc())
    chats = [_chat(row) for row in connection.execute(found.limit(n_most))]
    return chats[::-1] if before is not None else chats


def change_chat(
    connection: Connection,
    owner: str,
    chat_id: str,
    changes: Mapping[str, str | bool | None],
    now_us: int,
) -> KeptChat:
    """Change columns of a chat; return it as it is then.

    Raises:
        ChatError: there is none, or its branch would end in a message of another.
    """
    chat_row(connection, owner, chat_id, locks=True)
    if tail := changes.get("tail_id"):
        inside = select(MESSAGES.c.number).where(
            MESSAGES.c.id == tail, MESSAGES.c.chat_id == chat_id
        )
        if connection.execute(inside).one_or_none() is None:
            raise ChatError(
                ChatFault.INVALID,
                "active_thread_tail_message_id: no message of this chat",
                "active_thread_tail_message_id",
            )
    values = {**changes, "modified_us": now_us}
    connection.execute(update(CHATS).where(CHATS.c.id == chat_id).values(**values))
    return read_chat(connection, owner, chat_id)


def delete_chat(connection: Connection, owner: str, chat_id: str) -> None:
    """Delete a chat with its messages, and their words.

    Raises:
        ChatError: there is none.
    """
    chat_row(connection, owner, chat_id, locks=True)
    forget_chat(connection, chat_id)
    connection.execute(delete(CHATS).where(CHATS.c.id == chat_id))


def delete_old(connection: Connection, before_us: int, n_most: int = 100) -> int:
    """Delete the chats that were changed before a moment; return how many these were."""
    found = select(CHATS.c.id, CHATS.c.owner).where(CHATS.c.modified_us < before_us)
    rows = connection.execute(found.limit(n_most)).all()
    for row in sorted(rows):  # locked in the order in which others lock them
        delete_chat(connection, row.owner, row.id)
    return len(rows)


def count_all(connection: Connection) -> tuple[int, int]:
    """Count all chats and their messages."""
    n_chats = connection.execute(select(func.count()).select_from(CHATS))
    n_messages = connection.execute(select(func.count()).select_from(MESSAGES))
    return n_chats.scalar_one(), n_messages.scalar_one()


def _chat(row: Row[tuple[object, ...]] | ChatRow) -> KeptChat:
    fields = row._mapping  # noqa: SLF001  # its public name for columns by name
    return KeptChat(
        id=fields["id"],
        owner=fields["owner"],
        created_us=fields["created_us"],
        modified_us=fields["modified_us"],
        title=fields["title"],
        is_hidden=fields["is_hidden"],
        tail_id=fields["tail_id"],
        settings=msgspec.json.decode(fields["settings"], type=OwnSettings),
    )
