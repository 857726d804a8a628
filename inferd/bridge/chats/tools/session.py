"""A server of tools that runs, confined, with the process that speaks MCP with it."""

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, Protocol

import msgspec
import trio

from inferd.bridge.chats.tools.confined import confined
from inferd.bridge.chats.tools.offer import ToolFaultError
from inferd.config.tools import (
    MAX_TOOL_LINE_BYTES,
    ToolServerSettings,
)
from inferd.errors import FrameTooLargeError
from inferd.tool_host.messages import (
    HOST_MESSAGE,
    LINES,
    CallOfTool,
    HostFault,
    HostMessage,
    ListedTool,
    ToolListing,
    ToolOutcome,
)
from inferd.wire.framing import LineSplitter

_HOST: Final = ("-P", "-m", "inferd.tool_host")
_MOST_BYTES: Final = 8 * MAX_TOOL_LINE_BYTES
"""Bytes of a line of the process: the server's, with all that JSON may make longer."""


class HostStream(Protocol):
    """One end of a pipe to the process."""

    async def send_all(self, data: bytes) -> None:
        """Send all of this."""


class HostOutput(Protocol):
    """The other end."""

    async def receive_some(self) -> bytes | bytearray:
        """Return what has come; nothing at the end."""


class ToolSession:
    """A server that runs.

    Args:
        server: its settings.
        asked: takes what the process beside it is told.
        said: gives what it says.
    """

    def __init__(
        self, server: ToolServerSettings, asked: HostStream, said: HostOutput
    ) -> None:
        self._server = server
        self._asked = asked
        self._said = said
        self._lines = LineSplitter(_MOST_BYTES)
        self.tools: Sequence[ListedTool] = ()
        """What it offers."""

    async def start(self) -> None:
        """Wait until it has listed its tools.

        Raises:
            ToolFaultError: it does not, or not in time.
        """
        with self._within(self._server.start_s, "it takes over {0:g} s to start"):
            message = await self._receive()
        if not isinstance(message, ToolListing):
            raise self._fault("it answered before it was asked")
        self.tools = message.tools

    async def call(self, name: str, arguments: dict[str, object]) -> ToolOutcome:
        """Call a tool; return its result. After a failure nothing more can be called.

        Raises:
            ToolFaultError: there is none, or not in time.

        Cancellation: leaves this unusable.
        """
        line = LINES.encode(CallOfTool(name, arguments)) + b"\n"
        with self._within(self._server.call_s, "the call takes over {0:g} s"):
            with suppress(trio.BrokenResourceError):  # what it said last is read below
                await self._asked.send_all(line)
            message = await self._receive()
        if not isinstance(message, ToolOutcome):
            raise self._fault("it answered what it was not asked")
        return message

    @contextmanager
    def _within(self, limit_s: float, text: str) -> Iterator[None]:
        with trio.move_on_after(limit_s) as scope:
            yield
        if scope.cancelled_caught:
            raise self._fault(text.format(limit_s))

    async def _receive(self) -> HostMessage:
        line = await self._next_line()
        try:
            message: HostMessage = HOST_MESSAGE.decode(line)
        except msgspec.DecodeError as error:
            raise self._fault("it sent something else") from error
        if isinstance(message, HostFault):
            raise self._fault(message.text[:200])
        return message

    async def _next_line(self) -> bytes:
        try:
            while (line := self._lines.next_frame()) is None:
                part = await self._said.receive_some()
                if not part:
                    raise self._fault("it has ended")
                self._lines.feed(part)
        except FrameTooLargeError as error:
            raise self._fault("it sent too much") from error
        return line

    def _fault(self, text: str) -> ToolFaultError:
        return ToolFaultError(self._server.name, text)


@asynccontextmanager
async def tool_session(server: ToolServerSettings) -> AsyncIterator[ToolSession]:
    """Run a server inside, with a directory of its own that is removed.

    Raises:
        ToolFaultError: it cannot be started.
    """
    command = [sys.executable, *_HOST, *server.command]
    try:
        async with confined(command, server) as process:
            session = ToolSession(server, process.asked, process.said)
            await session.start()
            yield session
    except OSError as error:
        raise ToolFaultError(
            server.name, f"cannot be started: {error.strerror}"
        ) from error
