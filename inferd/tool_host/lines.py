"""Lines of a stream, within a bound."""

from collections.abc import AsyncIterator
from typing import Protocol

from inferd.config.tools import MAX_TOOL_LINE_BYTES


class Parts(Protocol):
    """What comes over a stream."""

    def __aiter__(self) -> AsyncIterator[bytes | bytearray]:
        """Give its parts."""


class ToolServerError(Exception):
    """The server cannot be used; its text says why."""


async def lines_of(stream: Parts) -> AsyncIterator[bytes]:
    """Yield the lines of a stream.

    Raises:
        ToolServerError: one is too long.
    """
    rest = bytearray()
    async for part in stream:
        *lines, tail = part.split(b"\n")
        for line in lines:
            yield bytes(rest) + line
            rest.clear()
        rest += tail
        if len(rest) > MAX_TOOL_LINE_BYTES:
            raise ToolServerError(f"it sent a line of over {MAX_TOOL_LINE_BYTES} bytes")
