"""Chats and messages in the form in which they are served, exported and imported; pure."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, Literal

from msgspec import Struct

from inferd.chats.records import (
    AnswerFailure,
    AnswerUsage,
    ChatRole,
    ChatSampling,
    KeptAttachment,
    KeptChat,
    KeptMessage,
    LeftOut,
    MessageState,
    OwnSettings,
    StoredCall,
    WorkParameters,
)

_NO_FILES: Final[Mapping[str, bytes]] = MappingProxyType({})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ModelConfig(Struct, frozen=True, kw_only=True):
    """The model of an answer."""

    name: str


class WorkDocument(Struct, frozen=True, kw_only=True):
    """What an answer was asked for with."""

    model_config: ModelConfig
    sampling_parameters: ChatSampling
    system_prompt: str | None
    thinking: bool | None


class AttachmentDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A picture or a recording of a message."""

    id: str
    name: str
    media_type: str
    n_bytes: int
    data: str | None = None
    """In base64, of an export."""


class MessageDocument(Struct, frozen=True, kw_only=True):
    """A message."""

    id: str
    parent_id: str | None
    chat_id: str
    role: ChatRole
    content: str
    created_at: str
    state: MessageState
    score: int = 0
    reports: list[str] = []  # msgspec copies it
    work_parameters: WorkDocument | None = None
    safe_content: str | None = None
    safety_level: int | None = None
    safety_label: str | None = None
    safety_rots: str | None = None
    used_plugin: str | None = None
    thinking: str | None = None
    tool_calls: list[StoredCall] = []  # as above
    finish_reason: str | None = None
    usage: AnswerUsage | None = None
    error: AnswerFailure | None = None
    context: LeftOut | None = None
    attachments: list[AttachmentDocument] = []  # as above
    notes: list[str] = []  # as above


class ChatDocument(Struct, frozen=True, kw_only=True):
    """A chat, as a list has it."""

    id: str
    created_at: str
    modified_at: str
    title: str | None
    hidden: bool
    active_thread_tail_message_id: str | None
    settings: OwnSettings
    allow_data_use: Literal[False] = False


class WholeChatDocument(ChatDocument, frozen=True, kw_only=True):
    """A chat with its messages."""

    messages: list[MessageDocument]


def moment(us: int) -> str:
    """Write a time that is given in microseconds since 1970."""
    at = _EPOCH + timedelta(microseconds=us)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def message_document(
    message: KeptMessage, files: Mapping[str, bytes] = _NO_FILES
) -> MessageDocument:
    """Return a message in its form, with the bytes of those of its files that are given."""
    details = message.details
    word = details.filter_words[-1] if details.filter_words else None
    return MessageDocument(
        id=message.id,
        parent_id=message.parent_id,
        chat_id=message.chat_id,
        role=message.role,
        content=message.text,
        created_at=moment(message.created_us),
        state=message.state,
        work_parameters=_work(details.work) if details.work else None,
        thinking=message.thinking or None,
        tool_calls=details.calls,
        finish_reason=details.finish_reason,
        usage=details.usage,
        error=details.failure,
        context=details.left_out,
        notes=details.notes,
        safety_label=word.label or word.verdict if word else None,
        safety_rots=word.reason if word else None,
        safety_level=word.level if word else None,
        attachments=[
            _attachment(each, files.get(each.id)) for each in message.attachments
        ],
    )


def _attachment(kept: KeptAttachment, data: bytes | None) -> AttachmentDocument:
    return AttachmentDocument(
        id=kept.id,
        name=kept.name,
        media_type=kept.media_type,
        n_bytes=kept.n_bytes,
        data=None if data is None else b64encode(data).decode(),
    )


def _work(work: WorkParameters) -> WorkDocument:
    return WorkDocument(
        model_config=ModelConfig(name=work.model),
        sampling_parameters=work.sampling,
        system_prompt=work.system_prompt,
        thinking=work.thinking,
    )


def chat_document(chat: KeptChat) -> ChatDocument:
    """Return a chat in its form."""
    return ChatDocument(
        id=chat.id,
        created_at=moment(chat.created_us),
        modified_at=moment(chat.modified_us),
        title=chat.title,
        hidden=chat.is_hidden,
        active_thread_tail_message_id=chat.tail_id,
        settings=chat.settings,
    )


def whole_chat(
    chat: KeptChat,
    messages: Sequence[KeptMessage],
    files: Mapping[str, bytes] = _NO_FILES,
) -> WholeChatDocument:
    """Return a chat with its messages, and with the files that are given."""
    head = chat_document(chat)
    return WholeChatDocument(
        **{name: getattr(head, name) for name in head.__struct_fields__},
        messages=[message_document(message, files) for message in messages],
    )


def markdown(chat: KeptChat, messages: Sequence[KeptMessage]) -> str:
    """Write a branch of a chat as Markdown, its texts as they are."""
    parts = [f"# {chat.title or 'Chat'}\n"]
    for message in messages:
        who = "You"
        if message.role == "assistant":
            work = message.details.work
            who = work.model if work else "Assistant"
        parts.append(f"## {who}, {moment(message.created_us)}\n\n{message.text}\n")
        parts.extend(
            f"- {each.name} ({each.media_type}, {each.n_bytes} bytes)\n"
            for each in message.attachments
        )
    return "\n".join(parts)
