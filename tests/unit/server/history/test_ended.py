import pytest
import trio

from inferd import surfaces
from inferd.server.history.ended import EndedRequests
from inferd.server.identity.gateways import Principal
from inferd.server.identity.peer import Peer
from inferd.server.inflight import InFlight
from inferd.server.request_context import RequestContext
from inferd.server.telemetry.metrics import Metrics


class Ending:
    """Requests that come and end at once."""

    def __init__(self, max_requests: int) -> None:
        self.ended = EndedRequests(max_requests)
        self._in_flight = InFlight(Metrics(), self.ended)

    def end(
        self, *ids: str, uid: int = 1000, principal: str = "", model: str = ""
    ) -> None:
        for request_id in ids:
            peer = Peer(pid=17, uid=uid, gid=100)
            context = RequestContext(
                peer, surfaces.INFER, request_id, trio.current_time()
            )
            context.principal = Principal(principal, -7) if principal else None
            context.model = model
            self._in_flight.add(context)
            self._in_flight.remove(context)

    def kept(self) -> list[str]:
        return [each.request_id for each in self.ended]


async def test_the_newest_are_kept_the_last_to_end_first():
    ending = Ending(3)
    ending.end("a", "b", "c", "d")
    assert ending.kept() == ["d", "c", "b"]
    assert [each.number for each in ending.ended] == [4, 3, 2]


async def test_a_flood_of_one_user_leaves_the_others_an_equal_share():
    ending = Ending(10)
    ending.end("a", "b", "c", uid=1)
    ending.end(*map(str, range(1000)), uid=2)
    assert ending.kept() == [*map(str, range(999, 992, -1)), "c", "b", "a"]
    ending.end(*"defgh", uid=1)
    assert sum(each.caller.user == 1 for each in ending.ended) == 5


async def test_a_gateway_is_one_user_and_its_principals_share():
    ending = Ending(9)
    ending.end("u", uid=1)
    ending.end("ann", uid=2, principal="ann")
    ending.end(*map(str, range(100)), uid=2, principal="bob")
    assert {"u", "ann"} < {*ending.kept()}
    for n in range(100):
        ending.end(f"x{n}", uid=2, principal=f"name {n}")
    assert "u" in ending.kept()
    assert len(ending.ended) == 9


async def test_records_are_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr("inferd.server.history.ended.MAX_EXPLAINED_BYTES", 2**17)
    ending = Ending(100_000)
    for n in range(100):
        ending.end("i" * 9000, principal=f"{n}" + "p" * 120, model="m" * 128)
    assert ending.ended.n_bytes <= 2**17
    assert 20 < len(ending.ended) < 100
    assert {len(each) for each in ending.kept()} == {129}


async def test_none_are_kept_where_none_are_to_be():
    ending = Ending(0)
    ending.end("a")
    assert ending.kept() == []


@pytest.mark.parametrize("n_users", [1, 50])
async def test_what_is_forgotten_leaves_no_state(n_users: int):
    ending = Ending(1)
    for n in range(200):
        ending.end("a", uid=n % n_users, principal=f"{n}")
    assert len(vars(ending.ended)["_numbers"]) == 1
    assert len(vars(ending.ended)["_principals"]) == 1
