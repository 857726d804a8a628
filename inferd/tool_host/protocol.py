"""A connection to a server of tools over its standard input and output."""

import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import anyio
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.session import ClientSession
from mcp.shared.message import SessionMessage
from mcp_types import (
    CallToolResult,
    Implementation,
    PaginatedRequestParams,
    TextContent,
    jsonrpc_message_adapter,
)

from inferd.config.tools import MAX_LISTED_TOOLS
from inferd.tool_host.lines import ToolServerError, lines_of
from inferd.tool_host.messages import ListedTool, ToolOutcome

_NAME = "inferd"


@asynccontextmanager
async def connected(command: Sequence[str]) -> AsyncIterator[ClientSession]:
    """Start a server, and speak with it inside.

    Args:
        command: its program and arguments.

    Raises:
        ToolServerError: it cannot be started, or sends what is not MCP.
    """
    try:
        process = await trio.lowlevel.open_process(
            [*command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise ToolServerError(f"cannot be started: {error.strerror}") from error
    assert process.stdin is not None  # noqa: S101  # a pipe
    assert process.stdout is not None  # noqa: S101  # a pipe
    received, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, sent = anyio.create_memory_object_stream[SessionMessage](0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_receive, process.stdout, received)
        nursery.start_soon(_send, sent, process.stdin)
        client = Implementation(name=_NAME, version="1")
        async with ClientSession(read, write, client_info=client) as session:
            await session.initialize()
            yield session
        nursery.cancel_scope.cancel()


async def _receive(
    stdout: trio.abc.ReceiveStream,
    received: "MemoryObjectSendStream[SessionMessage | Exception]",
) -> None:
    """Pass on the messages of the server, one line each.

    Raises:
        ToolServerError: it has ended, or a line is too long or no message.
    """
    async for line in lines_of(stdout):
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError as error:
            raise ToolServerError("it sent a line that is no message of MCP") from error
        await received.send(SessionMessage(message))
    raise ToolServerError("it has ended")


async def _send(
    sent: "MemoryObjectReceiveStream[SessionMessage]",
    stdin: trio.abc.SendStream,
) -> None:
    """Pass on what the client says."""
    async for each in sent:
        text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await stdin.send_all(text.encode() + b"\n")
        except trio.BrokenResourceError as error:
            raise ToolServerError("it has ended") from error


async def list_tools(session: ClientSession) -> list[ListedTool]:
    """Return all tools of a server.

    Raises:
        ToolServerError: there are too many.
    """
    found: list[ListedTool] = []
    cursor: str | None = None
    while True:
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        found.extend(
            ListedTool(each.name, each.description or "", each.input_schema)
            for each in page.tools
        )
        if len(found) > MAX_LISTED_TOOLS or (cursor and not page.tools):
            raise ToolServerError(f"it lists over {MAX_LISTED_TOOLS} tools")
        if (cursor := page.next_cursor) is None:
            return found


def outcome(result: CallToolResult) -> ToolOutcome:
    """Return the texts of a result; other parts are named."""
    return ToolOutcome("\n".join(_texts(result)), bool(result.is_error))


def _texts(result: CallToolResult) -> Iterator[str]:
    for part in result.content:
        if isinstance(part, TextContent):
            yield part.text
        else:
            yield f"[{part.type}: not shown to the model]"
