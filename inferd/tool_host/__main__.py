"""Speak with a server of tools: ``python -m inferd.tool_host COMMAND ARGUMENTS``.

The bridge starts it through ``inferd.downloader.confine``, asks over its standard input, and
reads over its standard output; both end with the process group.
"""

import os
import sys
from collections.abc import Iterator
from typing import Final

import trio

from inferd.tool_host.lines import ToolServerError, lines_of
from inferd.tool_host.messages import CALL, LINES, HostFault, HostMessage, ToolListing

_INPUT: Final = 0
_OUTPUT: Final = 1


def main() -> None:
    """Serve the bridge until it closes the input."""
    try:
        trio.run(_run, sys.argv[1:])
    finally:
        os._exit(0)  # the server may hold on to what it inherited


async def _run(command: list[str]) -> None:
    """Serve the bridge, and tell it why that ended."""
    told = trio.lowlevel.FdStream(os.dup(_OUTPUT))
    try:
        await _serve(command, told)
    except ModuleNotFoundError as error:  # of an extra
        text = f"inferd[tools] is not installed: there is no {error.name}"
        await _say(told, HostFault(text))
    except Exception as error:  # noqa: BLE001  # of the server, or about what it sent
        await _say(told, HostFault(_reason(error)))


async def _serve(command: list[str], told: trio.abc.SendStream) -> None:
    from inferd.tool_host import protocol  # noqa: PLC0415  # of an extra

    asked = trio.lowlevel.FdStream(os.dup(_INPUT))
    async with protocol.connected(command) as session:
        await _say(told, ToolListing(await protocol.list_tools(session)))
        async for line in lines_of(asked):
            call = CALL.decode(line)
            result = await session.call_tool(call.name, call.arguments)
            await _say(told, protocol.outcome(result))


async def _say(told: trio.abc.SendStream, message: HostMessage) -> None:
    await told.send_all(LINES.encode(message) + b"\n")


def _reason(error: Exception) -> str:
    """Return why it ended: what is known to be wrong with the server comes first."""
    leaves = [*_leaves(error)]
    for each in leaves:
        if isinstance(each, ToolServerError):
            return str(each)
    return f"speaking with it failed: {type(leaves[0]).__name__}"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for each in error.exceptions:
        yield from _leaves(each)


if __name__ == "__main__":
    main()
