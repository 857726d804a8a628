"""Lines of a stream, within a bound."""

from collections.abc import AsyncIterator
from typing import Protocol

from inferd.config.tools import MAX_TOOL_LINE_BYTES
from inferd.errors import FrameTooLargeError
from inferd.wire.framing import LineSplitter


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
    splitter = LineSplitter(MAX_TOOL_LINE_BYTES)
    try:
        async for part in stream:
            splitter.feed(part)
            while (line := splitter.next_frame()) is not None:
                yield line
    except FrameTooLargeError as error:
        text = f"it sent a line of over {MAX_TOOL_LINE_BYTES} bytes"
        raise ToolServerError(text) from error
