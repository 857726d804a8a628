"""Messages in the database: added within bounds, read, and changed while they are generated."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Struct
from sqlalchemy import Connection, Row, func, insert, select, update

from inferd.chats.branches import check_parent
from inferd.chats.failures import ChatError, ChatFault, no_message
from inferd.chats.records import (
    UNFINISHED,
    KeptAttachment,
    KeptMessage,
    MessageDetails,
    MessageState,
)
from inferd.chats.storage.attachments import add_attachments, attachments_of
from inferd.chats.storage.chats import chat_row
from inferd.chats.storage.search import index_messages
from inferd.chats.storage.tables import CHATS, MESSAGES
from inferd.chats.titles import title_of

_NO_FILES: Final[Mapping[str, bytes]] = MappingProxyType({})
_DETAILS = msgspec.json.Decoder(MessageDetails)
_STORED_CHARS: Final = (
    func.length(MESSAGES.c.text) + func.length(MESSAGES.c.thinking)
).label("n_chars")
"""What the text and the reasoning of a message have in the database."""


class MessageLimits(Struct, frozen=True, kw_only=True):
    """What an owner may store."""

    n_messages: int
    """Of one chat."""
    n_chars: int
    """Of all messages of the owner."""
    n_pending: int
    """Answers of the owner that are not finished."""
    n_attached_bytes: int = 0
    """Of all pictures and recordings of the owner."""


def add_message(  # noqa: PLR0913  # what is stored, by whom, within which bounds
    connection: Connection,
    owner: str,
    message: KeptMessage,
    limits: MessageLimits,
    runner: str | None = None,
    *,
    files: Mapping[str, bytes] = _NO_FILES,
) -> KeptMessage:
    """Store a message of a chat; one that is there already is returned as it is.

    Args:
        connection: of a transaction.
        owner: of the chat.
        message: the new one; its id may have been chosen by a client that repeats itself.
        limits: what the owner may store.
        runner: who generates it.
        files: the bytes of its attachments, by their ids.

    Raises:
        ChatError: there is no such chat or parent, the id is taken by another message, or a
            bound is reached.
    """
    chat = chat_row(connection, owner, message.chat_id, locks=True)
    if (known := _known(connection, message)) is not None:
        return known
    parent = None
    if message.parent_id is not None:
        parent = read_message(connection, owner, message.chat_id, message.parent_id)
    check_parent(parent, answers=message.role == "assistant")
    check_n_messages(chat.n_messages + 1, limits)
    _check_owner(connection, owner, message, limits)
    connection.execute(insert(MESSAGES).values(runner=runner, **_values(message)))
    add_attachments(connection, owner, [message], files, limits.n_attached_bytes)
    changes: dict[str, object] = {
        "modified_us": message.created_us,
        "n_messages": CHATS.c.n_messages + 1,
        "n_chars": CHATS.c.n_chars + n_chars_of(message),
        "tail_id": message.id,
    }
    if message.role == "prompter" and chat.title is None:
        changes["title"] = title_of(message.words)
    connection.execute(
        update(CHATS).where(CHATS.c.id == message.chat_id).values(changes)
    )
    if not message.is_unfinished:
        index_messages(connection, [message.id])
    return message


def insert_messages(connection: Connection, ended: Sequence[KeptMessage]) -> None:
    """Store messages of a new chat, which have ended, within bounds that were looked at."""
    connection.execute(insert(MESSAGES), [_values(message) for message in ended])
    index_messages(connection, [message.id for message in ended])


def check_n_messages(n_messages: int, limits: MessageLimits) -> None:
    """Check how many messages a chat would have.

    Raises:
        ChatError: more than it may.
    """
    if n_messages > limits.n_messages:
        raise ChatError(
            ChatFault.LIMIT,
            f"a chat has at most {limits.n_messages} messages; begin another",
            "messages",
        )


def _known(connection: Connection, message: KeptMessage) -> KeptMessage | None:
    """Return the message of this id, if a client sends it once more.

    Raises:
        ChatError: it is another message.
    """
    found = select(MESSAGES).where(MESSAGES.c.id == message.id)
    row = connection.execute(found).one_or_none()
    if row is None:
        return None
    known = _message(row, attachments_of(connection, row.chat_id, message.id))
    is_same = (known.chat_id, known.parent_id, known.role) == (
        message.chat_id,
        message.parent_id,
        message.role,
    )
    if not is_same or (
        message.role == "prompter" and _content_of(known) != _content_of(message)
    ):
        raise ChatError(ChatFault.CONFLICT, "id: another message has it", "id")
    return known


def _content_of(message: KeptMessage) -> tuple[object, ...]:
    """Return what a client has chosen of a message."""
    return message.text, [(each.name, each.digest) for each in message.attachments]


def _check_owner(
    connection: Connection, owner: str, message: KeptMessage, limits: MessageLimits
) -> None:
    check_chars(connection, owner, n_chars_of(message), limits)
    if message.is_unfinished and count_pending(connection, owner) >= limits.n_pending:
        raise ChatError(
            ChatFault.LIMIT,
            f"{limits.n_pending} answers of yours are waited for already",
            "pending",
        )


def n_chars_of(message: KeptMessage) -> int:
    """Return what a message counts of its owner's characters."""
    return len(message.text) + len(message.thinking)


def check_chars(
    connection: Connection, owner: str, n_more: int, limits: MessageLimits
) -> None:
    """Check how many characters the chats of an owner would have.

    Raises:
        ChatError: more than they may.
    """
    used = select(func.coalesce(func.sum(CHATS.c.n_chars), 0)).where(
        CHATS.c.owner == owner
    )
    if connection.execute(used).scalar_one() + n_more > limits.n_chars:
        raise ChatError(
            ChatFault.LIMIT,
            f"your chats have {limits.n_chars} characters; delete some",
            "content",
        )


def count_pending(connection: Connection, owner: str) -> int:
    """Count the answers of an owner that are not finished."""
    found = (
        select(func.count())
        .select_from(MESSAGES.join(CHATS, CHATS.c.id == MESSAGES.c.chat_id))
        .where(CHATS.c.owner == owner, MESSAGES.c.state.in_(UNFINISHED))
    )
    return connection.execute(found).scalar_one()


def read_message(
    connection: Connection, owner: str, chat_id: str, message_id: str
) -> KeptMessage:
    """Return a message.

    Raises:
        ChatError: there is no such chat of the owner, or no such message in it.
    """
    chat_row(connection, owner, chat_id)
    found = select(MESSAGES).where(
        MESSAGES.c.id == message_id, MESSAGES.c.chat_id == chat_id
    )
    row = connection.execute(found).one_or_none()
    if row is None:
        raise no_message()
    return _message(row, attachments_of(connection, chat_id, message_id))


def read_messages(
    connection: Connection, owner: str, chat_id: str
) -> Sequence[KeptMessage]:
    """Return all messages of a chat, oldest first; raises as ``chat_row``."""
    chat_row(connection, owner, chat_id)
    found = select(MESSAGES).where(MESSAGES.c.chat_id == chat_id)
    rows = connection.execute(found.order_by(MESSAGES.c.number))
    attached = attachments_of(connection, chat_id)
    return [_message(row, attached) for row in rows]


def cancel_others(
    connection: Connection, chat_id: str, message_id: str
) -> Sequence[str]:
    """Cancel the other answers of a locked chat that still wait; return their ids."""
    found = select(MESSAGES.c.id).where(
        MESSAGES.c.chat_id == chat_id,
        MESSAGES.c.state == "pending",
        MESSAGES.c.id != message_id,
    )
    return _end_all(connection, list(connection.execute(found).scalars()), "cancelled")


def stop_message(
    connection: Connection, owner: str, chat_id: str, message_id: str
) -> KeptMessage:
    """Cancel an answer that is not finished; return it. Raises as ``read_message``."""
    chat_row(connection, owner, chat_id, locks=True)
    message = read_message(connection, owner, chat_id, message_id)
    if message.is_unfinished:
        _end_all(connection, [message_id], "cancelled")
        message = read_message(connection, owner, chat_id, message_id)
    return message


def write_answer(connection: Connection, message: KeptMessage, runner: str) -> bool:
    """Store an answer as far as it is; tell whether it is still to be generated.

    It is not where somebody has stopped it, deleted its chat, or taken its generator for
    dead.

    Args:
        connection: of a transaction.
        message: the answer.
        runner: who generates it.
    """
    _lock(connection, [message.chat_id])
    return _write(connection, message, runner, UNFINISHED)


def finish_answer(
    connection: Connection, message: KeptMessage, runner: str
) -> KeptMessage | None:
    """Store the end of an answer; return what is stored then.

    One that somebody has stopped meanwhile stays so, with all of its text.

    Args:
        connection: of a transaction.
        message: the answer.
        runner: who has generated it.

    Returns:
        The answer; ``None`` where it was deleted with its chat.
    """
    _lock(connection, [message.chat_id])
    if not _write(connection, message, runner, UNFINISHED):
        _write(connection, message.as_stopped(), runner, ("cancelled",))
    found = select(MESSAGES).where(MESSAGES.c.id == message.id)
    row = connection.execute(found).one_or_none()
    return None if row is None else _message(row, {})


def _write(
    connection: Connection,
    message: KeptMessage,
    runner: str,
    expected: Sequence[MessageState],
) -> bool:
    """Change an answer that is in a state; tell whether it was. Its chat is locked."""
    is_it = (
        MESSAGES.c.id == message.id,
        MESSAGES.c.runner == runner,
        MESSAGES.c.state.in_(expected),
    )
    before = connection.execute(select(MESSAGES.c.state, _STORED_CHARS).where(*is_it))
    if (row := before.one_or_none()) is None:
        return False
    changes = _values(message)
    for kept in ("id", "chat_id", "parent_id", "role", "created_us"):
        del changes[kept]
    connection.execute(update(MESSAGES).where(*is_it).values(changes))
    if not message.is_unfinished:
        n_counted = 0 if row.state in UNFINISHED else row.n_chars
        _count(connection, message.chat_id, n_chars_of(message) - n_counted)
        index_messages(connection, [message.id])
    return True


def end_unfinished(connection: Connection, runners: Sequence[str]) -> Sequence[str]:
    """Mark what ran at bridges that are dead as aborted, with its text; return the ids."""
    is_left = (MESSAGES.c.state.in_(UNFINISHED), MESSAGES.c.runner.in_(runners))
    found = select(MESSAGES.c.chat_id).where(*is_left).distinct()
    _lock(connection, list(connection.execute(found).scalars()))
    ids = list(connection.execute(select(MESSAGES.c.id).where(*is_left)).scalars())
    return _end_all(connection, ids, "aborted_by_worker")


def _lock(connection: Connection, chat_ids: Sequence[str]) -> None:
    """Keep all others from changing chats and their messages before the transaction ends.

    All who change a message lock its chat first, and several chats in the order of their ids:
    none waits for one who waits for it.
    """
    found = select(CHATS.c.id).where(CHATS.c.id.in_(chat_ids)).order_by(CHATS.c.id)
    connection.execute(found.with_for_update()).all()


def _end_all(
    connection: Connection, ids: Sequence[str], state: MessageState
) -> Sequence[str]:
    """End answers that have not ended, whose chats are locked; return their ids."""
    if not ids:
        return []
    found = select(MESSAGES.c.id, MESSAGES.c.chat_id, _STORED_CHARS).where(
        MESSAGES.c.id.in_(ids), MESSAGES.c.state.in_(UNFINISHED)
    )
    rows = connection.execute(found).all()
    ended = [row.id for row in rows]
    connection.execute(
        update(MESSAGES).where(MESSAGES.c.id.in_(ended)).values(state=state)
    )
    for row in rows:
        _count(connection, row.chat_id, row.n_chars)
    index_messages(connection, ended)
    return ended


def _count(connection: Connection, chat_id: str, n_more: int) -> None:
    """Count characters of a message that has ended."""
    changed = {"n_chars": CHATS.c.n_chars + n_more}
    connection.execute(update(CHATS).where(CHATS.c.id == chat_id).values(changed))


def _values(message: KeptMessage) -> dict[str, object]:
    return {
        "id": message.id,
        "chat_id": message.chat_id,
        "parent_id": message.parent_id,
        "role": message.role,
        "state": message.state,
        "created_us": message.created_us,
        "text": message.text,
        "thinking": message.thinking,
        "details": msgspec.json.encode(message.details).decode(),
    }


def _message(
    row: Row[tuple[object, ...]], attached: Mapping[str, tuple[KeptAttachment, ...]]
) -> KeptMessage:
    fields = row._mapping  # noqa: SLF001  # its public name for columns by name
    return KeptMessage(
        id=fields["id"],
        chat_id=fields["chat_id"],
        parent_id=fields["parent_id"],
        role=fields["role"],
        state=fields["state"],
        created_us=fields["created_us"],
        text=fields["text"],
        thinking=fields["thinking"],
        details=_DETAILS.decode(fields["details"]),
        attachments=attached.get(fields["id"], ()),
    )
