"""Answers of the chat service beside chats and messages, as Open-Assistant's clients read them."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import UNSET, Struct

from inferd.bridge.translation.api import OfferedModel
from inferd.bridge.translation.failures import invalid
from inferd.chats.documents import ChatDocument, MessageDocument, chat_document, moment
from inferd.chats.records import (
    KeptChat,
    SearchHit,
)
from inferd.limits.bridge import EXCERPT_CHARS

_CURSOR: Final = re.compile(r"([0-9]{1,19}):([0-9a-f]{1,32})\Z")
_LATEST_US: Final = 2**63 - 1
"""Databases have no larger number."""


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
    except ValueError as error:
        raise invalid(param, _NO_CURSOR) from error
    found = _CURSOR.match(text)
    if found is None or int(found[1]) > _LATEST_US:
        raise invalid(param, _NO_CURSOR)
    return int(found[1]), found[2]


_NO_CURSOR: Final = "is no cursor of a list of chats"


def hit_document(hit: SearchHit, words: Sequence[str]) -> HitDocument:
    """Return a message that was found, with the text around the first of the words."""
    text = hit.text.lower()
    places = (text.find(word.lower()) for word in words)
    first = min((place for place in places if place >= 0), default=0)
    at = max(0, first - EXCERPT_CHARS // 3)
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
