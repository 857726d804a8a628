import os

import trio
from msgspec import UNSET

from inferd import surfaces
from inferd.admission.control import Admission, RequestTraits
from inferd.backend.caller import Caller
from inferd.backend.interface import CacheReuse
from inferd.limits.server import MAX_LISTED_LOADS
from inferd.server.history.ended import EndedRequests
from inferd.server.history.overview import Overviews
from inferd.server.identity.gateways import Principal
from inferd.server.identity.peer import Peer
from inferd.server.inflight import InFlight
from inferd.server.queue.requests import RequestQueue
from inferd.server.request_context import RequestContext
from inferd.server.telemetry.metrics import Metrics
from inferd.wire.observed import Overview
from tests.fakes.backend import ScriptedBackend
from tests.fakes.output import Spoken


class Machine:
    """Requests that come, run and end, and who looks at them."""

    def __init__(self, max_ended: int = 1000) -> None:
        self.metrics = Metrics()
        self.metrics.add_gauge("connections", "", lambda: 3.0)
        self.in_flight = InFlight(self.metrics, EndedRequests(max_ended))
        self.queue = RequestQueue(Admission(max_active=2, max_queued=9))
        self.backend = ScriptedBackend()
        self.overviews = Overviews(
            self.in_flight,
            self.queue,
            [self.backend],
            self.metrics,
            lambda: "ready",
            began_at=-1000.0,
        )

    def come(self, uid: int, principal: str = "") -> RequestContext:
        peer = Peer(pid=17, uid=uid, gid=100)
        context = RequestContext(peer, surfaces.INFER, "r", trio.current_time())
        context.principal = Principal(principal, -7) if principal else None
        self.in_flight.add(context)
        return context

    async def answer(
        self, uid: int, seconds: float, n_tokens: int = 0, outcome: str = "end"
    ) -> None:
        context = self.come(uid)
        with self.queue.admitted(RequestTraits(caller=Caller(uid))) as permit:
            with context.queued(permit, self.backend.name):
                context.started()
                context.input_tokens = 10
                context.output = Spoken(
                    n_tokens, trio.current_time(), reuse=CacheReuse(cached_tokens=4)
                )
                await trio.sleep(seconds)
        context.outcome = outcome
        self.in_flight.remove(context)

    def look(self) -> Overview:
        return self.overviews.look()


async def test_shares_rates_and_times_are_those_of_the_last_minute(autojump_clock):
    machine = Machine()
    await machine.answer(1, 30.0, 300)
    await trio.sleep(70)
    await machine.answer(1, 10.0, 100)
    await machine.answer(2, 30.0, 200, outcome="internal")
    seen = machine.look()
    assert (seen.window_s, seen.ended, seen.failed) == (60, 2, 1)
    assert [(each.uid, each.share) for each in seen.users] == [(2, 0.75), (1, 0.25)]
    assert seen.tokens_per_second == 5
    assert (seen.input_tokens, seen.cached_tokens) == (20, 8)
    assert seen.total_ms is not UNSET
    assert (seen.total_ms.n, seen.total_ms.p99) == (1, 10_000)
    assert (seen.models[0].name, seen.models[0].tokens_per_second) == ("scripted", 5)
    assert (seen.connections, seen.pid, seen.status) == (3, os.getpid(), "ready")


async def test_those_that_run_and_wait_count_as_well(autojump_clock):
    machine = Machine()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(machine.answer, 1, 60.0)
        await trio.sleep(20)
        machine.come(2, "ann")
        seen = machine.look()
        nursery.cancel_scope.cancel()
    assert [(each.uid, each.principal or "") for each in seen.users] == [
        (1, ""),
        (2, "ann"),
    ]
    assert [(each.running, each.waiting) for each in seen.users] == [(1, 0), (0, 1)]
    assert [each.share for each in seen.users] == [1, 0]
    assert (seen.running, seen.places, seen.waiting) == (1, 2, 0)
    assert (seen.models[0].running, seen.models[0].waiting) == (1, 0)


async def test_what_was_forgotten_shortens_the_time(autojump_clock):
    machine = Machine(max_ended=2)
    for _ in range(3):
        await machine.answer(1, 5.0, 10)
    seen = machine.look()
    assert (seen.window_s, seen.ended, seen.tokens_per_second) == (10, 2, 2)


async def test_users_are_bounded(autojump_clock):
    machine = Machine()
    for uid in range(MAX_LISTED_LOADS + 7):
        machine.come(uid)
    seen = machine.look()
    assert (len(seen.users), seen.omitted_users) == (MAX_LISTED_LOADS, 7)
