"""The settings of chats that the bridge keeps: the table ``[chats]``, which the daemon ignores."""

from typing import Annotated

from msgspec import Meta, Struct

from inferd.config.filters import FilterSettings
from inferd.config.tools import MAX_TOOL_SERVERS, ToolServerSettings
from inferd.limits.bridge import (
    ANSWER_S,
    MAX_CHAT_MESSAGES,
    MAX_CHATS,
    MAX_FILE_BYTES,
    MAX_MESSAGE_CHARS,
    MAX_MESSAGE_FILES,
    MAX_PENDING_ANSWERS,
    MAX_USER_CHARS,
    MAX_USER_FILE_BYTES,
)

Most = Annotated[int, Meta(ge=1, le=2**40)]


class ChatsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Chats that ``inferd bridge`` keeps; the daemon itself ignores this table."""

    enabled: bool = True
    """``false``: no chats are kept, and their routes answer 501."""
    database: Annotated[str, Meta(min_length=1)] | None = None
    """Path of a file of SQLite, or a URL that begins with ``postgresql://``, which several bridges
    may share. Default: ``chats.db`` in ``$STATE_DIRECTORY``, else in
    ``~/.local/state/inferd``."""
    context: Annotated[str, Meta(pattern="^(omit|summarise|refuse)$")] = "omit"
    """What becomes of a conversation that the context has no room for, where its owner has not
    decided: ``omit`` leaves out the oldest turns and marks that, ``summarise`` has the model
    summarise them, ``refuse`` refuses the answer."""
    max_chats: Most = MAX_CHATS
    """Chats of one user."""
    max_messages: Most = MAX_CHAT_MESSAGES
    """Messages of one chat, on all its branches."""
    max_message_chars: Most = MAX_MESSAGE_CHARS
    """Characters of one message."""
    max_user_chars: Most = MAX_USER_CHARS
    """Characters of all messages of one user, with the reasoning of answers."""
    max_attachments: Annotated[int, Meta(ge=0, le=32)] = MAX_MESSAGE_FILES
    """Pictures and recordings of one message; 0: none are kept."""
    max_attachment_bytes: Most = MAX_FILE_BYTES
    """Bytes of one; ``bridge.max_body_bytes`` bounds a message, whose files are in base64."""
    max_user_attachment_bytes: Most = MAX_USER_FILE_BYTES
    """Bytes of all of one user."""
    max_pending: Annotated[int, Meta(ge=1, le=1024)] = MAX_PENDING_ANSWERS
    """Answers of one user that wait or are generated at once."""
    answer_s: Annotated[float, Meta(gt=0, le=86_400)] = ANSWER_S
    """Seconds that an answer may wait and be generated, with its calls of tools."""
    retention_days: Annotated[int, Meta(ge=0, le=36_500)] = 0
    """Days without a change after which a chat is deleted; 0: never."""
    tool_servers: Annotated[
        tuple[ToolServerSettings, ...], Meta(max_length=MAX_TOOL_SERVERS)
    ] = ()
    """Servers of tools (MCP) that answers may call, each a table ``[[chats.tool_servers]]``."""
    filter: FilterSettings | None = None
    """A program that may refuse or mark texts, a table ``[chats.filter]``."""
