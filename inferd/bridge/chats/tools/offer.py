"""Tools under the names that a model is told, and whether a call is to be confirmed; pure."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from inferd.chats.records import storable
from inferd.config.tools import MAX_RESULT_CHARS, MAX_TOOLS_BYTES, ToolServerSettings
from inferd.tool_host.messages import ListedTool
from inferd.wire.blocks import Tool

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")
_ALL: Final = "*"


class ToolFaultError(Exception):
    """A server of tools cannot be used, or has not done as asked; its text is for people.

    Args:
        server: its name.
        text: why.
    """

    def __init__(self, server: str, text: str) -> None:
        super().__init__(f"the tool server {server}: {text}")


class OfferedTool(Struct, frozen=True):
    """A tool that a model may call."""

    server: ToolServerSettings
    listed: ListedTool

    @property
    def name(self) -> str:
        """What the model calls it."""
        return f"{self.server.name}__{self.listed.name}"

    @property
    def is_allowed(self) -> bool:
        """Whether it is called without asking the user."""
        allowed = self.server.allowed
        return _ALL in allowed or self.listed.name in allowed

    def definition(self) -> Tool:
        """Return what the model is told of it."""
        schema = msgspec.Raw(msgspec.json.encode(self.listed.input_schema))
        return Tool(self.name, self.listed.description, schema)


def offered(
    server: ToolServerSettings, listed: Sequence[ListedTool]
) -> Sequence[OfferedTool]:
    """Return the tools that a server lists.

    Raises:
        ToolFaultError: a name is none for a model, is there twice, or all are too large.
    """
    if len(msgspec.json.encode(listed)) > MAX_TOOLS_BYTES:
        raise ToolFaultError(
            server.name, f"its list of tools has over {MAX_TOOLS_BYTES} bytes"
        )
    names = [each.name for each in listed]
    for name in names:
        if not _NAME.match(name) or names.count(name) > 1:
            shown = name[:40].encode("unicode_escape").decode()
            raise ToolFaultError(
                server.name,
                f"it lists a tool {shown!r}, twice or with other characters than letters, "
                "digits, _ and -",
            )
    return [OfferedTool(server, each) for each in listed]


def cut_result(text: str, n_left: int) -> str:
    """Return a result as it is stored and shown to the model.

    Args:
        text: of the server.
        n_left: characters that the answer may still have of results.
    """
    n_most = max(0, min(MAX_RESULT_CHARS, n_left))
    kept = storable(text[:n_most])
    if len(text) > n_most:
        kept += f"\n[cut: {len(text) - n_most} characters more]"
    return kept
