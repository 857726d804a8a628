from contextlib import contextmanager

import pytest
import trio

from inferd import surfaces
from inferd.server.identity.gateways import Principal
from inferd.server.identity.peer import Peer
from inferd.server.inflight import InFlight
from inferd.server.request_context import RequestContext
from inferd.server.telemetry.metrics import Metrics


def begin(request_id: str = "r", uid: int = 1000) -> RequestContext:
    peer = Peer(pid=17, uid=uid, gid=100)
    return RequestContext(peer, surfaces.INFER, request_id, trio.current_time())


@contextmanager
def present(in_flight: InFlight, *contexts: RequestContext):
    for context in contexts:
        in_flight.add(context)
    try:
        yield
    finally:
        for context in contexts:
            in_flight.remove(context)


async def test_requests_are_in_order_of_arrival_until_they_end():
    in_flight = InFlight(Metrics())
    first, second, third = begin(), begin(), begin()
    with present(in_flight, first):
        with present(in_flight, second):
            with present(in_flight, third):
                assert [*in_flight] == [first, second, third]
            assert [*in_flight] == [first, second]
        assert [*in_flight] == [first]
    assert [*in_flight] == []


async def test_two_requests_that_look_the_same_are_two():
    in_flight = InFlight(Metrics())
    with present(in_flight, begin(), begin()):
        assert len([*in_flight]) == 2


async def test_a_removed_request_is_counted_whatever_ended_it():
    metrics = Metrics()
    in_flight = InFlight(metrics)
    context = begin()
    with pytest.raises(ZeroDivisionError), present(in_flight, context):
        context.outcome = "internal"
        assert "internal" not in metrics.text()
        raise ZeroDivisionError
    assert [*in_flight] == []
    counted = 'inferd_requests_total{outcome="internal",socket="infer.sock"} 1.0'
    assert counted in metrics.text()


async def test_a_cancel_reaches_all_requests_with_an_id_or_those_of_one_owner():
    in_flight = InFlight(Metrics())
    mine, hers, other = begin("r", 1), begin("r", 2), begin("other", 1)
    with present(in_flight, mine, hers, other):
        assert in_flight.cancel("r", owner=2) == 1
        assert [each.is_cancelled for each in in_flight] == [False, True, False]
        assert in_flight.cancel("r", owner=3) == 0
        assert in_flight.cancel("R", owner=None) == 0
        assert in_flight.cancel("r", owner=None) == 2
        assert [each.is_cancelled for each in in_flight] == [True, True, False]


async def test_a_cancel_reaches_the_requests_of_one_principal():
    in_flight = InFlight(Metrics())
    own, anns, bobs = (begin("r") for _ in range(3))
    anns.principal, bobs.principal = Principal("ann", -9), Principal("bob", -8)
    with present(in_flight, own, anns, bobs):
        assert in_flight.cancel("r", owner=1000, principal="ann") == 1
        assert [each.is_cancelled for each in in_flight] == [False, True, False]
        assert in_flight.cancel("r", owner=1000) == 1
        assert not bobs.is_cancelled
        assert in_flight.cancel("r", owner=7, principal=None) == 0
        assert in_flight.cancel("r", owner=None, principal=None) == 3


async def test_owner_0_has_no_more_rights_here():
    in_flight = InFlight(Metrics())
    hers = begin("r", 2)
    with present(in_flight, hers):
        assert in_flight.cancel("r", owner=0) == 0
    assert not hers.is_cancelled


async def test_a_removed_request_is_not_cancelled():
    in_flight = InFlight(Metrics())
    context = begin()
    with present(in_flight, context):
        pass
    assert in_flight.cancel("r", owner=None) == 0
    assert not context.is_cancelled


async def test_who_only_asks_for_models_is_counted_and_leaves_no_record():
    metrics = Metrics()
    in_flight = InFlight(metrics)
    looking, asking = begin("looking"), begin("asking")
    with present(in_flight, looking, asking):
        looking.listed()
        asking.done("end")
    assert [each.request_id for each in in_flight.ended] == ["asking"]
    counted = 'inferd_requests_total{outcome="end",socket="infer.sock"} 2.0'
    timed = 'inferd_request_seconds_count{socket="infer.sock"} 1.0'
    assert {counted, timed} <= {*metrics.text().splitlines()}
