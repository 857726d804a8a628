"""F-70: a look costs what there is to see for who looks, whatever others have asked."""

import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import pytest
import trio

from inferd import surfaces
from inferd.admission.control import Admission
from inferd.server.admin.commands import Commands
from inferd.server.admin.reload import ReloadResult
from inferd.server.identity.peer import Peer
from inferd.server.inflight import InFlight
from inferd.server.queue.requests import RequestQueue
from inferd.server.request_context import RequestContext
from inferd.server.telemetry.metrics import Metrics
from inferd.wire.commands import Reply
from tests.cases import each_case
from tests.fakes.streams import Frame, to_line

ANNA = Peer(pid=1, uid=70_001, gid=100)
BERT = Peer(pid=2, uid=70_002, gid=100)
FEW, MANY = 3, 300


async def nothing_reloaded() -> ReloadResult:
    return ReloadResult([], [])


def commands_beside(n_requests: int) -> Commands:
    """Make the commands of a daemon with one request of Anna's and many of Bert's."""
    in_flight = InFlight(Metrics())

    def come(peer: Peer) -> RequestContext:
        context = RequestContext(peer, surfaces.INFER, "r", trio.current_time())
        in_flight.add(context)
        return context

    for peer, n_of_peer in ((ANNA, 1), (BERT, n_requests)):
        for _ in range(n_of_peer):
            come(peer)
            in_flight.remove(come(peer))
    return Commands(
        in_flight=in_flight,
        queue=RequestQueue(Admission(max_active=1, max_queued=1)),
        backends=[],
        metrics=Metrics(),
        drain=lambda: True,
        reload=nothing_reloaded,
    )


def n_steps(call: Callable[[], object]) -> int:
    """Count the instructions of Python's that a call takes."""
    n_opcodes = 0

    def trace(frame: FrameType, event: str, _arg: object) -> Callable[..., Any]:
        nonlocal n_opcodes
        frame.f_trace_opcodes = True
        n_opcodes += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return n_opcodes


def at_once(answer: Coroutine[Any, Any, Reply]) -> None:
    with pytest.raises(StopIteration):
        answer.send(None)


@each_case(
    "command",
    [
        {"command": "explain"},
        {"command": "explain", "id": "r"},
        {"command": "explain", "id": "unknown"},
        {"command": "explain", "number": 5},
        {"command": "requests"},
        {"command": "cancel", "id": "r"},
    ],
)
async def test_a_look_costs_no_more_for_what_others_have_asked(command: Frame):
    def cost(n_requests: int) -> int:
        commands = commands_beside(n_requests)
        return n_steps(lambda: at_once(commands.answer(to_line(command), ANNA)))

    cost(FEW)  # so that the log has been written to once
    assert cost(MANY) < cost(FEW) + MANY
