"""What answers of chats are generated with."""

from collections.abc import Callable
from dataclasses import dataclass, field

from inferd.bridge.access_log import BridgeLog
from inferd.bridge.chats.content_filter import ContentFilter
from inferd.bridge.chats.tools.servers import ToolServers
from inferd.bridge.identity.caller import Callers
from inferd.bridge.identity.share import SharedLimit
from inferd.bridge.upstream.daemon import DaemonClient
from inferd.chats.store import ChatStore
from inferd.config.chats import ChatsSettings
from inferd.limits.bridge import MAX_ASKED_FILE_BYTES, MAX_HELD_FILE_BYTES


@dataclass(frozen=True)
class AnswerParts:
    """What answers are generated with."""

    store: ChatStore
    daemon: DaemonClient
    callers: Callers
    settings: ChatsSettings
    log: BridgeLog
    default_max_tokens: int
    held: SharedLimit = field(
        default_factory=lambda: SharedLimit(
            MAX_HELD_FILE_BYTES, least=MAX_ASKED_FILE_BYTES
        )
    )
    """Bytes of files with which answers are asked for now."""
    count_tokens: Callable[[int, str], None] = lambda _, __: None
    """Is told the tokens of each request, and whose it was."""
    tools: ToolServers = field(default_factory=lambda: ToolServers(()))
    content_filter: ContentFilter = field(default_factory=lambda: ContentFilter(None))
