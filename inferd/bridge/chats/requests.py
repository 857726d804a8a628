"""The requests about chats: their fields and their types; pure."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from inferd.bridge.chats.attachments import ImportedAttachment, SentAttachment
from inferd.bridge.translation.fields import FieldTable, honoured, ignored, refused
from inferd.bridge.translation.query import QueryForm
from inferd.chats.records import (
    Id,
    ModelName,
    OwnSettings,
    SystemPrompt,
    Title,
)
from inferd.limits.bridge import MAX_HITS, MAX_PAGE_CHATS

_NO_PLUGINS: Final = refused(
    "plugins", note="there are no plugins here", neutral=([],)
) + refused("used_plugin", note="there are no plugins here")
_SAMPLED: Final = "an object; the fields are below"
_FILES: Final = "pictures and recordings, each with `name` and `data` in base64"
_REPEATED: Final = (
    "chosen by the client, 32 hex digits: the same request may be sent again"
)


class CreateChat(Struct, frozen=True, kw_only=True):
    """A new chat."""

    title: Title | None = None
    settings: OwnSettings | None = None


class ChangeChat(Struct, frozen=True, kw_only=True):
    """Changes of a chat."""

    title: Title | None = None
    hidden: bool | None = None
    active_thread_tail_message_id: Id | None = None
    settings: OwnSettings | None = None


class CreatePrompt(Struct, frozen=True, kw_only=True):
    """A message of the person."""

    content: str = ""
    parent_id: Id | None = None
    id: Id | None = None
    attachments: list[SentAttachment] = []  # msgspec copies it


class CreateAnswer(Struct, frozen=True, kw_only=True):
    """A request for an answer."""

    parent_id: Id
    model_config_name: ModelName
    sampling_parameters: dict[str, object] | None = None
    system_prompt: SystemPrompt | None = None
    thinking: bool | None = None
    id: Id | None = None


class CreateBoth(Struct, frozen=True, kw_only=True):
    """A message of the person, and a request for its answer."""

    model_config_name: ModelName
    content: str = ""
    parent_id: Id | None = None
    sampling_parameters: dict[str, object] | None = None
    attachments: list[SentAttachment] = []  # as above


class DecideCall(Struct, frozen=True, kw_only=True):
    """What the owner says of a call that waits."""

    allow: bool


class Nothing(Struct, frozen=True, kw_only=True):
    """A request without fields."""


class ImportedMessage(Struct, frozen=True, kw_only=True):
    """A message of an import."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    role: Literal["prompter", "assistant"]
    content: str
    parent_id: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    thinking: str | None = None
    attachments: list[ImportedAttachment] = []  # as above


class ImportChat(Struct, frozen=True, kw_only=True):
    """A chat that was exported."""

    messages: list[ImportedMessage]
    title: Title | None = None
    settings: OwnSettings | None = None


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which chats to list."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_CHATS)] = 10
    after: str | None = None
    before: str | None = None
    include_hidden: bool = False


class SearchQuery(Struct, frozen=True, kw_only=True):
    """What to look for."""

    q: str = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_HITS)] = 20


class ExportQuery(Struct, frozen=True, kw_only=True):
    """The form of an export."""

    format: Literal["json", "markdown"] = "json"
    attachments: bool = True


class DebugQuery(Struct, frozen=True, kw_only=True):
    """Who signs in."""

    code: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._@-]{1,64}\Z")] = "user"


CREATE_CHAT: Final = FieldTable("POST /chats", honoured("title", "settings"))
CHANGE_CHAT: Final = FieldTable(
    "PUT /chats/{chat_id}",
    [
        *honoured("title", "hidden", "active_thread_tail_message_id"),
        *honoured("settings", note="replaces all settings of the chat"),
        *ignored("allow_data_use", note="nothing is used for anything else"),
    ],
)
CREATE_PROMPT: Final = FieldTable(
    "POST /chats/{chat_id}/prompter_message",
    [
        *honoured("content", "parent_id"),
        *honoured("id", note=_REPEATED),
        *honoured("attachments", note=_FILES),
    ],
)
CREATE_ANSWER: Final = FieldTable(
    "POST /chats/{chat_id}/assistant_message",
    [
        *honoured("parent_id", "model_config_name", "system_prompt", "thinking"),
        *honoured("sampling_parameters", note=_SAMPLED),
        *honoured("id", note=_REPEATED),
        *refused(
            "user_profile", "user_response_instructions", note="say it in system_prompt"
        ),
        *_NO_PLUGINS,
    ],
)
CREATE_BOTH: Final = FieldTable(
    "POST /chats/{chat_id}/messages",
    [
        *honoured("content", "parent_id", "model_config_name"),
        *honoured("sampling_parameters", note=_SAMPLED),
        *honoured("attachments", note=_FILES),
    ],
)
SAMPLING: Final = FieldTable(
    "sampling_parameters",
    [
        *honoured("temperature", "top_p", "top_k", "repetition_penalty"),
        *honoured(
            "max_new_tokens", note="tokens of the answer, its reasoning included"
        ),
        *refused("typical_p", note="this sampler is not offered", neutral=(1, 1.0)),
    ],
)
DECIDE: Final = FieldTable(
    "POST /chats/{chat_id}/messages/{message_id}/tool_calls/{call_id}",
    honoured("allow", note="whether it is made; the first word counts"),
)
STOP: Final = FieldTable("POST /chats/{chat_id}/messages/{message_id}/stop", ())
IMPORT: Final = FieldTable(
    "POST /chats/import",
    [
        *honoured("messages", note="each after the one that it follows"),
        *honoured("title", "settings"),
        *ignored(
            "id",
            "created_at",
            "modified_at",
            "hidden",
            "allow_data_use",
            "active_thread_tail_message_id",
            note="an import has its own",
        ),
    ],
)
IMPORTED_MESSAGE: Final = FieldTable(
    "messages of an import",
    [
        *honoured("id", "role", "content", "parent_id", "thinking"),
        *honoured("attachments", note="those with `data`"),
        *ignored(
            "chat_id",
            "created_at",
            "state",
            "score",
            "reports",
            "work_parameters",
            "safe_content",
            "safety_level",
            "safety_label",
            "safety_rots",
            "used_plugin",
            "tool_calls",
            "finish_reason",
            "usage",
            "error",
            "context",
            note="an import has the texts alone",
        ),
    ],
)
LIST_QUERY: Final = QueryForm(
    FieldTable(
        "Query parameters of GET /chats and GET /owners/{owner}/chats",
        honoured("limit", "after", "before", "include_hidden"),
    ),
    ListQuery,
)
SEARCH_QUERY: Final = QueryForm(
    FieldTable("Query parameters of GET /chats/search", honoured("q", "limit")),
    SearchQuery,
)
EXPORT_QUERY: Final = QueryForm(
    FieldTable(
        "Query parameters of GET /chats/{chat_id}/export",
        [
            *honoured("format"),
            *honoured("attachments", note="`false`: without the data of files"),
        ],
    ),
    ExportQuery,
)
DEBUG_QUERY: Final = QueryForm(
    FieldTable(
        "Query parameters of GET /auth/callback/debug",
        honoured("code", note="the name of who signs in"),
    ),
    DebugQuery,
)
