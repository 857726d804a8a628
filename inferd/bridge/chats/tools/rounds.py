"""The calls of one answer: confirmed where that is wanted, carried out, their results kept."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import trio
from msgspec.structs import replace

from inferd.bridge.chats.question import ToolOffer
from inferd.bridge.chats.running import RunningAnswer
from inferd.bridge.chats.tools.offer import (
    OfferedTool,
    ToolFaultError,
    cut_result,
)
from inferd.bridge.chats.tools.servers import ToolServers
from inferd.chats.records import CallState, StoredCall
from inferd.chats.storage.decisions import decision_of
from inferd.chats.store import ChatConnection
from inferd.config.tools import (
    MAX_ANSWER_RESULT_CHARS,
    MAX_ROUND_CALLS,
    MAX_TOOL_ROUNDS,
    TOOL_CONFIRM_S,
    TOOL_IDLE_S,
)
from inferd.limits.bridge import FOLLOW_S
from inferd.tool_host.messages import ToolOutcome

T = TypeVar("T")
_DENIED: Final = "The user did not allow this call."
_TOO_MANY: Final = f"Not called: at most {MAX_ROUND_CALLS} calls are made at once."


class DecisionStore(Protocol):
    """Where it is looked up what users have said."""

    async def run(self, operation: Callable[[ChatConnection], T]) -> T:
        """Run an operation in a transaction."""


class ToolCaller(Protocol):
    """What calls tools."""

    async def call(self, tool: OfferedTool, arguments: object) -> ToolOutcome:
        """Call one."""

    async def end_servers(self) -> None:
        """Return what it holds for others; the next call begins anew."""


class ToolRounds:
    """Carries out the calls of one answer.

    Args:
        store: has what users say of calls.
        running: the answer.
        tools: that it may call.
        servers: of these.
    """

    def __init__(
        self,
        store: DecisionStore,
        running: RunningAnswer,
        tools: Mapping[str, OfferedTool],
        servers: ToolCaller,
    ) -> None:
        self._store = store
        self._running = running
        self._tools = tools
        self._servers = servers
        self._n_rounds = 0

    def offer(self) -> ToolOffer:
        """Return what the model may call now; after ``MAX_TOOL_ROUNDS`` it has to answer."""
        return ToolOffer(
            [each.definition() for each in self._tools.values()],
            {name: _first_state(tool) for name, tool in self._tools.items()},
            may_call=self._n_rounds < MAX_TOOL_ROUNDS,
        )

    async def run_calls(self) -> bool:
        """Carry out the calls that have no result yet; tell whether there were any.

        Cancellation: leaves those that follow without a result.
        """
        calls = self._running.message.details.calls
        places = [at for at, call in enumerate(calls) if not call.has_ended]
        self._n_rounds += 1
        for number, place in enumerate(places):
            if number < MAX_ROUND_CALLS:
                await self._run(place)
            else:
                self._change(place, "denied", _TOO_MANY)
        return bool(places)

    async def _run(self, place: int) -> None:
        call = self._running.message.details.calls[place]
        if call.state == "waiting" and not await self._is_allowed(call):
            self._change(place, "denied", _DENIED)
            return
        self._change(place, "running")
        try:
            outcome = await self._servers.call(self._tools[call.name], call.input)
        except ToolFaultError as error:
            self._change(place, "failed", str(error))
        else:
            state: CallState = "failed" if outcome.is_error else "done"
            self._change(place, state, outcome.text)

    async def _is_allowed(self, call: StoredCall) -> bool:
        """Wait until the user has said whether a call is made; silence denies it.

        Servers that run for the answer are ended after ``TOOL_IDLE_S``: others want their places.
        """
        message_id = self._running.message.id
        held_until = trio.current_time() + TOOL_IDLE_S
        with trio.move_on_after(TOOL_CONFIRM_S):
            while True:
                said = await self._store.run(
                    lambda connection: decision_of(connection, message_id, call.id)
                )
                if said is not None:
                    return said
                if trio.current_time() >= held_until:
                    await self._servers.end_servers()
                await trio.sleep(FOLLOW_S)
        return False

    def _change(self, place: int, state: CallState, result: str | None = None) -> None:
        message = self._running.message
        calls = [*message.details.calls]
        if result is not None:
            n_used = sum(len(each.result or "") for each in calls)
            result = cut_result(result, MAX_ANSWER_RESULT_CHARS - n_used)
        calls[place] = replace(calls[place], state=state, result=result)
        details = replace(message.details, calls=calls)
        self._running.change(replace(message, details=details))


def _first_state(tool: OfferedTool) -> CallState:
    return "running" if tool.is_allowed else "waiting"


async def tools_of(
    servers: ToolServers, names: Sequence[str]
) -> tuple[Mapping[str, OfferedTool], Sequence[str]]:
    """Return the tools of some servers by the names that a model is told.

    Args:
        servers: all of them.
        names: of those.

    Returns:
        The tools, and why those of others are not offered.
    """
    found: dict[str, OfferedTool] = {}
    faults: list[str] = []
    for name in names:
        try:
            found |= {each.name: each for each in await servers.listed(name)}
        except ToolFaultError as error:
            faults.append(str(error))
    return found, faults
