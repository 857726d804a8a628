"""What owners of chats say of calls of tools, for whichever bridge generates the answer."""

from sqlalchemy import Connection, insert, select

from inferd.chats.failures import ChatError, ChatFault
from inferd.chats.records import KeptMessage
from inferd.chats.storage.chats import chat_row
from inferd.chats.storage.messages import read_message
from inferd.chats.storage.tables import DECISIONS


def decide(  # noqa: PLR0913  # whose, of what, and how
    connection: Connection,
    owner: str,
    chat_id: str,
    message_id: str,
    *,
    call_id: str,
    is_allowed: bool,
) -> KeptMessage:
    """Store what an owner says of a call; the first word counts. Return the message.

    The caller knows the call; what is stored of the message may not have it yet.

    Raises:
        ChatError: there is no such message of the owner, or it has ended.
    """
    chat_row(connection, owner, chat_id, locks=True)  # two may say it at once
    message = read_message(connection, owner, chat_id, message_id)
    if not message.is_unfinished:
        raise ChatError(ChatFault.CONFLICT, "the answer has ended")
    if decision_of(connection, message_id, call_id) is None:
        connection.execute(
            insert(DECISIONS).values(
                chat_id=chat_id,
                message_id=message_id,
                call_id=call_id,
                is_allowed=is_allowed,
            )
        )
    return message


def decision_of(connection: Connection, message_id: str, call_id: str) -> bool | None:
    """Return what was said of a call; ``None`` while nothing was."""
    found = select(DECISIONS.c.is_allowed).where(
        DECISIONS.c.message_id == message_id, DECISIONS.c.call_id == call_id
    )
    return connection.execute(found).scalar_one_or_none()
