"""Servers of tools: the tables ``[[chats.tool_servers]]``, and the bounds of what they do."""

from typing import Annotated, Final

from msgspec import Meta, Struct

MAX_TOOL_SERVERS: Final = 16
"""Servers of tools: their descriptions are part of each prompt."""

MAX_LISTED_TOOLS: Final = 64
"""Tools of one server: models choose badly among more. F-66."""

MAX_TOOLS_BYTES: Final = 64 * 1024
"""Bytes of the names, descriptions and schemas of one server: some 16,000 tokens. F-66."""

MAX_TOOL_LINE_BYTES: Final = 1024 * 1024
"""Bytes of one message of a server. F-66."""

MAX_RESULT_CHARS: Final = 64 * 1024
"""Characters of a result; what is longer is cut, and says so. F-66."""

MAX_ANSWER_RESULT_CHARS: Final = 256 * 1024
"""Characters of all results of one answer. F-66."""

MAX_TOOL_ROUNDS: Final = 8
"""Times that the model is asked again with results before it must answer without. F-66."""

MAX_ROUND_CALLS: Final = 8
"""Calls of one such time; further ones are not carried out. F-66."""

TOOL_START_S: Final = 30.0
"""Seconds that a server may take to start and to list its tools: a Python with its packages
takes some on a busy machine."""

TOOL_CALL_S: Final = 60.0
"""Seconds that one call may take, by default."""

TOOL_CONFIRM_S: Final = 600.0
"""Seconds for which a call waits for its confirmation; then it counts as denied."""

TOOL_IDLE_S: Final = 60.0
"""Seconds for which the servers of an answer run on while its user is asked; somebody who looks
at the chat has answered by then. F-66."""

TOOL_LIST_S: Final = 600.0
"""Seconds for which the list of a server's tools is used."""

TOOL_RETRY_S: Final = 10.0
"""Seconds after which a server that failed to list its tools is asked again."""

MAX_TOOL_SESSIONS: Final = 8
"""Servers that run at once, each for one answer; one user has all but one at most. F-66."""

TOOL_MEMORY_MB: Final = 4096
"""MiB of addresses of a server's process, by default: those of Python and its packages, and
most of other languages. F-66."""

TOOL_FILE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one file that a server writes. F-66."""

ToolServerName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9]{0,19}\Z")]
Word = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\x00]+\Z")]

Variable = Annotated[
    str, Meta(max_length=4096, pattern=r"^[A-Za-z_][A-Za-z0-9_]*=[^\x00]*\Z")
]


class ConfinedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that runs confined, in a directory of its own."""

    command: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=64)]
    """Its path, and its arguments."""
    network: bool = False
    """Whether it may connect to other addresses."""
    reads: Annotated[tuple[Word, ...], Meta(max_length=64)] = ()
    """Files and directories that it reads, besides those of the system."""
    environ: Annotated[tuple[Variable, ...], Meta(max_length=64)] = ()
    """Variables of its environment, as ``NAME=value``."""
    memory_mb: Annotated[int, Meta(ge=64, le=2**24)] = TOOL_MEMORY_MB
    """MiB of addresses that it may use."""


class ToolServerSettings(
    ConfinedSettings, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A server of tools (MCP) that answers of chats may call.

    It speaks over its standard input and output, and is started for each answer that calls it.
    """

    name: ToolServerName
    """By which owners of chats choose it; part of the names of its tools."""
    allowed: Annotated[tuple[Word, ...], Meta(max_length=64)] = ()
    """Tools that are called without asking the user; ``["*"]``: all."""
    by_default: bool = True
    """Whether chats use it whose owner has not chosen."""
    start_s: Annotated[float, Meta(gt=0, le=3600)] = TOOL_START_S
    """Seconds that it may take to start and to list its tools."""
    call_s: Annotated[float, Meta(gt=0, le=3600)] = TOOL_CALL_S
    """Seconds that one call may take."""
