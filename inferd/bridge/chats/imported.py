"""The messages of an import, under ids of their own."""

import secrets
from collections.abc import Sequence
from typing import Final

from inferd.bridge.chats import requests as asked
from inferd.bridge.chats.attachments import AttachedFiles
from inferd.bridge.translation.failures import invalid
from inferd.chats.records import KeptChat, KeptMessage

ID_BYTES: Final = 16


def new_id() -> str:
    """Return an id that nobody has."""
    return secrets.token_hex(ID_BYTES)


def imported_messages(
    chat: KeptChat, sent: Sequence[asked.ImportedMessage], files: AttachedFiles
) -> Sequence[KeptMessage]:
    """Return the messages of an import under new ids.

    Args:
        chat: the new one.
        sent: its messages.
        files: takes their pictures and recordings.

    Raises:
        BridgeError: one follows a message that is not before it, or has other files.
    """
    ids: dict[str, str] = {}
    new: list[KeptMessage] = []
    for place, message in enumerate(sent):
        where = f"messages[{place}]"
        if message.parent_id is not None and message.parent_id not in ids:
            raise invalid(f"{where}.parent_id", "is not the id of a message before it")
        if message.id in ids:
            raise invalid(f"{where}.id", "is there twice")
        ids[message.id] = new_id()
        new.append(
            KeptMessage(
                id=ids[message.id],
                chat_id=chat.id,
                parent_id=ids.get(message.parent_id or ""),
                role=message.role,
                state="manual" if message.role == "prompter" else "complete",
                created_us=chat.created_us,
                text=message.content,
                thinking=message.thinking or "",
                attachments=files.take(message.attachments, f"{where}.attachments"),
            )
        )
    return new
