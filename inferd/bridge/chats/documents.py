"""Chats and messages as Open-Assistant's clients read them; pure."""

from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, Literal

from msgspec import UNSET, Struct

from inferd.bridge.translation.api import OfferedModel
from inferd.bridge.translation.failures import invalid
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
    SearchHit,
    StoredCall,
    WorkParameters,
)
from inferd.limits.bridge import EXCERPT_CHARS

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


class ChatListDocument(Struct, frozen=True, kw_only=True):
    """A page of chats."""

    chats: list[ChatDocument]
    next: str | None
    prev: str | None


class BothDocument(Struct, frozen=True, kw_only=True):
    """A message of the person and its answer."""

    message_id: str
    """Of the answer."""
    prompter_message: MessageDocument
    assistant_message: MessageDocument


class HitDocument(Struct, frozen=True, kw_only=True):
    """A message that was found."""

    chat_id: str
    message_id: str
    title: str | None
    excerpt: str
    created_at: str


class HitsDocument(Struct, frozen=True, kw_only=True):
    """What was found."""

    hits: list[HitDocument]


class ModelConfigInfo(Struct, frozen=True, kw_only=True):
    """A model that answers may be asked of."""

    name: str
    description: str = ""
    parameter_configs: list[str] = []  # as above
    n_ctx: int | None = None
    state: str | None = None
    thinking: bool | None = None
    images: bool | None = None
    audio: bool | None = None


class OfferedToolInfo(Struct, frozen=True, kw_only=True):
    """A tool that answers may call."""

    name: str
    description: str
    is_allowed: bool
    """Whether it is called without asking."""


class ToolServerInfo(Struct, frozen=True, kw_only=True):
    """A server of tools."""

    name: str
    is_default: bool
    """Whether chats use it whose owner has not chosen."""
    tools: list[OfferedToolInfo]
    error: str | None = None
    """Why it offers none now."""


class DebugToken(Struct, frozen=True, kw_only=True):
    """A token."""

    access_token: str
    token_type: Literal["bearer"] = "bearer"  # noqa: S105  # the word of OAuth


class DebugTokens(Struct, frozen=True, kw_only=True):
    """The answer to who signs in."""

    access_token: DebugToken
    refresh_token: DebugToken | None = None


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


def chat_page(
    found: Sequence[KeptChat], n_most: int, *, is_after: bool, is_before: bool
) -> ChatListDocument:
    """Return a page of chats.

    Args:
        found: the chats of the page, and one more if there is one beyond it.
        n_most: chats of the page.
        is_after: whether it follows another page.
        is_before: whether it precedes another.
    """
    has_more = len(found) > n_most
    page = found[-n_most:] if is_before else found[:n_most]
    return ChatListDocument(
        chats=[chat_document(chat) for chat in page],
        next=cursor_of(page[-1]) if page and (has_more or is_before) else None,
        prev=cursor_of(page[0])
        if page and (is_after or (is_before and has_more))
        else None,
    )


def cursor_of(chat: KeptChat) -> str:
    """Return the place of a chat in a list."""
    return urlsafe_b64encode(f"{chat.modified_us}:{chat.id}".encode()).decode()


def place_of_cursor(cursor: str | None, param: str) -> tuple[int, str] | None:
    """Return the change and the id that a cursor has.

    Raises:
        BridgeError: it is none of ours.
    """
    if cursor is None:
        return None
    try:
        text = urlsafe_b64decode(cursor.encode("ascii")).decode("ascii")
        modified_us, _, chat_id = text.partition(":")
        return int(modified_us[:20]), chat_id[:32]
    except ValueError as error:
        raise invalid(param, "is no cursor of a list of chats") from error


def hit_document(hit: SearchHit, query: str) -> HitDocument:
    """Return a message that was found, with the text around the first word."""
    first = next(iter(query.lower().split()), "")
    at = max(0, hit.text.lower().find(first) - EXCERPT_CHARS // 3)
    cut = hit.text[at : at + EXCERPT_CHARS]
    before = "…" if at else ""
    after = "…" if at + EXCERPT_CHARS < len(hit.text) else ""
    return HitDocument(
        chat_id=hit.chat_id,
        message_id=hit.message_id,
        title=hit.title,
        excerpt=f"{before}{cut}{after}",
        created_at=moment(hit.created_us),
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


def model_configs(models: Sequence[OfferedModel]) -> list[ModelConfigInfo]:
    """Return the models that generate text."""
    return [_model_config(model) for model in models if "generate" in model.uses]


def _model_config(model: OfferedModel) -> ModelConfigInfo:
    facts = model.facts
    if facts is None or facts.is_unread is True:
        return ModelConfigInfo(name=model.name, state=facts.state if facts else None)
    return ModelConfigInfo(
        name=model.name,
        n_ctx=None if facts.n_ctx is UNSET else facts.n_ctx,
        state=facts.state,
        thinking=facts.thinking,
        images=facts.vision,
        audio=facts.audio or facts.transcribe is True,
    )
