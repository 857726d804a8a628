"""Pictures and recordings in the database, of the chats of their owner."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, func, insert, select

from inferd.chats.failures import ChatError, ChatFault
from inferd.chats.records import KeptAttachment, KeptMessage
from inferd.chats.storage.chats import chat_row
from inferd.chats.storage.tables import ATTACHMENTS, CHATS

_COLUMNS = (
    ATTACHMENTS.c.id,
    ATTACHMENTS.c.name,
    ATTACHMENTS.c.media_type,
    ATTACHMENTS.c.n_bytes,
    ATTACHMENTS.c.digest,
)


def add_attachments(
    connection: Connection,
    owner: str,
    new: Sequence[KeptMessage],
    files: Mapping[str, bytes],
    n_most: int,
) -> None:
    """Store the attachments of new messages of one chat.

    Args:
        connection: of a transaction, in which the chat is locked.
        owner: of the chat.
        new: the messages.
        files: their bytes, by their ids.
        n_most: bytes of all attachments of the owner.

    Raises:
        ChatError: the owner has no such chat, or would have more.
    """
    chat_row(connection, owner, new[0].chat_id)
    attached = [(message, each) for message in new for each in message.attachments]
    if not attached:
        return
    mine = (
        select(func.coalesce(func.sum(ATTACHMENTS.c.n_bytes), 0))
        .join(CHATS, CHATS.c.id == ATTACHMENTS.c.chat_id)
        .where(CHATS.c.owner == owner)
    )
    n_new = sum(each.n_bytes for _, each in attached)
    if connection.execute(mine).scalar_one() + n_new > n_most:
        raise ChatError(
            ChatFault.LIMIT,
            f"the pictures and recordings of your chats have {n_most} bytes; delete some",
            "attachments",
        )
    rows = [
        {
            "id": each.id,
            "chat_id": message.chat_id,
            "message_id": message.id,
            "name": each.name,
            "media_type": each.media_type,
            "n_bytes": each.n_bytes,
            "digest": each.digest,
            "data": files[each.id],
        }
        for message, each in attached
    ]
    connection.execute(insert(ATTACHMENTS), rows)


def attachments_of(
    connection: Connection, chat_id: str, message_id: str | None = None
) -> Mapping[str, tuple[KeptAttachment, ...]]:
    """Return the attachments of a chat, or of one message of it, by their messages' ids."""
    found = select(ATTACHMENTS.c.message_id, *_COLUMNS).where(
        ATTACHMENTS.c.chat_id == chat_id
    )
    if message_id is not None:
        found = found.where(ATTACHMENTS.c.message_id == message_id)
    by_message: dict[str, tuple[KeptAttachment, ...]] = {}
    for message, *fields in connection.execute(found.order_by(ATTACHMENTS.c.number)):
        by_message[message] = (*by_message.get(message, ()), _attachment(*fields))
    return by_message


def read_attachment(
    connection: Connection, owner: str, chat_id: str, attachment_id: str
) -> tuple[KeptAttachment, bytes]:
    """Return an attachment with its bytes.

    Raises:
        ChatError: there is no such chat of the owner, or no such attachment in it.
    """
    chat_row(connection, owner, chat_id)
    found = select(*_COLUMNS, ATTACHMENTS.c.data).where(
        ATTACHMENTS.c.id == attachment_id, ATTACHMENTS.c.chat_id == chat_id
    )
    row = connection.execute(found).one_or_none()
    if row is None:
        raise ChatError(
            ChatFault.NO_ATTACHMENT, "there is no such attachment in this chat"
        )
    *fields, data = row
    return _attachment(*fields), bytes(data)


def read_files(
    connection: Connection, owner: str, chat_id: str, ids: Sequence[str]
) -> Mapping[str, bytes]:
    """Return the bytes of attachments by their ids, as far as they are there.

    Raises:
        ChatError: the owner has no such chat.
    """
    chat_row(connection, owner, chat_id)
    found = select(ATTACHMENTS.c.id, ATTACHMENTS.c.data).where(
        ATTACHMENTS.c.chat_id == chat_id, ATTACHMENTS.c.id.in_(ids)
    )
    return {each: bytes(data) for each, data in connection.execute(found)}


def _attachment(
    identity: str, name: str, media_type: str, n_bytes: int, digest: str
) -> KeptAttachment:
    return KeptAttachment(
        id=identity, name=name, media_type=media_type, n_bytes=n_bytes, digest=digest
    )
