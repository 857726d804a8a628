"""A chat as lines of JSON, and what is left of a file that was cut; pure.

A line says what has changed; of those that say the same, the last counts. A crash can cut the
last line alone, because each is written at once behind the ones before it.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from inferd.chats.records import KeptChat, KeptMessage
from inferd.cli.chat.conversation import Conversation, broken_off, with_part

CRASHED: Final = "inferd chat ended before the answer did"
"""Why an answer is not whole whose end is not in the file."""


class AnswerPart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has come of an answer since the line before."""

    id: str
    """Of the answer."""
    text: str = ""
    thinking: str = ""


class AttachedPath(Struct, frozen=True, kw_only=True):
    """Where the file of an attachment was when it was attached."""

    id: str
    """Of the attachment."""
    path: str


class HistoryLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: what it has is new."""

    chat: KeptChat | None = None
    message: KeptMessage | None = None
    part: AnswerPart | None = None
    attached: AttachedPath | None = None


_DECODER: Final = msgspec.json.Decoder(HistoryLine)
_CHAT: Final = b'{"chat":'


def encode_line(line: HistoryLine) -> bytes:
    """Return a line with its end."""
    return msgspec.json.encode(line) + b"\n"


def whole_lines(data: bytes) -> int:
    """Return how many bytes the lines have that are whole."""
    return data.rfind(b"\n") + 1


def read_lines(data: bytes) -> Iterator[HistoryLine]:
    """Yield the lines that can be read; a damaged one takes no other with it."""
    for line in data[: whole_lines(data)].splitlines():
        try:
            yield _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue


def latest_chat(data: bytes) -> KeptChat | None:
    """Return a chat without its messages; ``None`` if the file has none."""
    lines = data[: whole_lines(data)].split(b"\n")
    heads = b"\n".join(line for line in lines if line.startswith(_CHAT)) + b"\n"
    found = [line.chat for line in read_lines(heads) if line.chat is not None]
    return found[-1] if found else None


def replay(data: bytes) -> Conversation | None:
    """Return the chat that a file has; ``None`` if it has none."""
    chat: KeptChat | None = None
    conversation: Conversation | None = None
    for line in read_lines(data):
        if line.chat is not None:
            chat = line.chat
            conversation = conversation or Conversation(chat)
        if conversation is not None:
            _apply(conversation, line)
    if conversation is None or chat is None:
        return None
    for message in [*conversation.messages.values()]:
        if message.is_unfinished:
            conversation.put(broken_off(message, CRASHED))
    conversation.chat = chat
    _check_tail(conversation)
    return conversation


def _apply(conversation: Conversation, line: HistoryLine) -> None:
    if (message := line.message) is not None:
        conversation.put(message)
    if (part := line.part) is not None and part.id in conversation.messages:
        before = conversation.messages[part.id]
        conversation.put(with_part(before, part.text, part.thinking))
    if line.attached is not None:
        conversation.note_path(line.attached.id, line.attached.path)


def _check_tail(conversation: Conversation) -> None:
    """Go to the newest message where the one looked at, or one before it, was lost."""
    known = conversation.messages
    for message in [*known.values()]:
        if not _reaches_beginning(conversation, message):
            del known[message.id]
    tail = conversation.chat.tail_id
    if tail not in known:
        newest = next(reversed(known), None)
        conversation.go_to(newest, conversation.chat.modified_us)


def _reaches_beginning(conversation: Conversation, message: KeptMessage) -> bool:
    """Tell whether all messages before one are there, so that it can be shown."""
    for _ in range(len(conversation.messages) + 1):
        if message.parent_id is None:
            return True
        if (parent := conversation.messages.get(message.parent_id)) is None:
            return False
        message = parent
    return False
