"""The servers of tools: what each offers, and those that run for one answer."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import trio

from inferd.bridge.chats.documents import OfferedToolInfo, ToolServerInfo
from inferd.bridge.chats.tools.offer import OfferedTool, ToolFaultError, offered
from inferd.bridge.chats.tools.session import ToolSession, tool_session
from inferd.config.tools import (
    MAX_TOOL_SESSIONS,
    TOOL_LIST_S,
    TOOL_RETRY_S,
    ToolServerSettings,
)
from inferd.fair_limiter import FairLimiter
from inferd.tool_host.messages import ToolOutcome


@dataclass(frozen=True)
class _Listing:
    """What is known of a server."""

    tools: Sequence[OfferedTool]
    fault: ToolFaultError | None
    at: float
    """When it was listed."""

    @property
    def is_usable(self) -> bool:
        kept_s = TOOL_RETRY_S if self.fault else TOOL_LIST_S
        return trio.current_time() < self.at + kept_s


class ToolServers:
    """Knows what servers offer, and runs them for answers.

    Args:
        settings: of all servers.

    Bounds:
        ``MAX_TOOL_SESSIONS`` servers run at once, all but one at most for one user.
    """

    def __init__(self, settings: Sequence[ToolServerSettings]) -> None:
        self._servers = {each.name: each for each in settings}
        self._listings: dict[str, _Listing] = {}
        self._locks = {name: trio.Lock() for name in self._servers}
        self._limiter = FairLimiter(MAX_TOOL_SESSIONS)

    def __iter__(self) -> Iterator[ToolServerSettings]:
        """Give the settings of each."""
        yield from self._servers.values()

    def chosen(self, names: Sequence[str] | None) -> Sequence[str]:
        """Return the servers of a chat whose owner has chosen these, or not chosen."""
        if names is None:
            return [each.name for each in self if each.by_default]
        return [name for name in names if name in self._servers]

    async def listed(self, name: str) -> Sequence[OfferedTool]:
        """Return the tools of a server.

        Raises:
            ToolFaultError: it does not list them.
        """
        async with self._locks[name]:
            found = self._listings.get(name)
            if found is None or not found.is_usable:
                found = self._listings[name] = await self._list(self._servers[name])
        if found.fault is not None:
            raise found.fault
        return found.tools

    async def _list(self, server: ToolServerSettings) -> _Listing:
        tools: Sequence[OfferedTool] = ()
        fault = None
        try:
            async with self._limiter.acquire(None), tool_session(server) as session:
                tools = offered(server, session.tools)
        except ToolFaultError as error:
            fault = error
        return _Listing(tools, fault, trio.current_time())

    @asynccontextmanager
    async def for_answer(self, user: str) -> AsyncIterator["AnswerTools"]:
        """Run servers inside, each from its first call on."""
        async with AsyncExitStack() as stack:
            yield AnswerTools(self._limiter, stack, user)


async def tool_server_infos(servers: ToolServers) -> Sequence[ToolServerInfo]:
    """Return what all servers offer, or why one does not."""
    return [await _info(servers, each) for each in servers]


async def _info(servers: ToolServers, server: ToolServerSettings) -> ToolServerInfo:
    tools: Sequence[OfferedTool] = ()
    error = None
    try:
        tools = await servers.listed(server.name)
    except ToolFaultError as fault:
        error = str(fault)
    return ToolServerInfo(
        name=server.name,
        is_default=server.by_default,
        tools=[
            OfferedToolInfo(
                name=each.listed.name,
                description=each.listed.description,
                is_allowed=each.is_allowed,
            )
            for each in tools
        ],
        error=error,
    )


class AnswerTools:
    """The servers that run for one answer.

    An answer that waits for a place has none: it ends its servers first, or answers with two
    each could wait for one another.

    Args:
        limiter: of servers that run.
        stack: ends them.
        user: whose share they take.
    """

    def __init__(self, limiter: FairLimiter, stack: AsyncExitStack, user: str) -> None:
        self._limiter = limiter
        self._stack = stack
        self._user = user
        self._sessions: dict[str, ToolSession | ToolFaultError] = {}

    async def call(self, tool: OfferedTool, arguments: object) -> ToolOutcome:
        """Call a tool.

        Raises:
            ToolFaultError: its server has failed, now or earlier in this answer.
        """
        name = tool.server.name
        if not isinstance(arguments, dict):
            return ToolOutcome("the arguments are no object", is_error=True)
        try:
            session = await self._session(tool)
            return await session.call(tool.listed.name, arguments)
        except ToolFaultError as error:
            self._sessions[name] = error
            raise

    async def end_servers(self) -> None:
        """End those that run; the next call of each starts it anew."""
        await self._stack.aclose()
        self._sessions = {
            name: each
            for name, each in self._sessions.items()
            if isinstance(each, ToolFaultError)
        }

    async def _session(self, tool: OfferedTool) -> ToolSession:
        name = tool.server.name
        found = self._sessions.get(name)
        if isinstance(found, ToolFaultError):
            raise found
        if found is None:
            if self._limiter.would_wait(self._user):
                await self.end_servers()
            await self._stack.enter_async_context(self._limiter.acquire(self._user))
            found = await self._stack.enter_async_context(tool_session(tool.server))
            self._sessions[name] = found
        if tool.listed not in found.tools:
            raise ToolFaultError(
                name, f"it no longer offers {tool.listed.name} as it was described"
            )
        return found
