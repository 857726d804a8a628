import trio
from msgspec import UNSET, UnsetType

from inferd import surfaces
from inferd.limits.server import MAX_LISTED_EXPLAINED
from inferd.server.history.explain import explain
from inferd.server.identity.peer import Peer
from inferd.server.inflight import InFlight
from inferd.server.request_context import RequestContext
from inferd.server.telemetry.metrics import Metrics
from inferd.wire.commands import Command, Reply
from inferd.wire.observed import ExplainedRequest

ANNA, BERT = 1, 2
BORN_NS = 1_700_000_000_000_000_000


class Register:
    """Requests that come and end."""

    def __init__(self) -> None:
        self.in_flight = InFlight(Metrics())

    def come(self, request_id: str, uid: int = ANNA) -> RequestContext:
        peer = Peer(pid=17, uid=uid, gid=100)
        context = RequestContext(peer, surfaces.INFER, request_id, trio.current_time())
        context.arrived_ns = BORN_NS
        self.in_flight.add(context)
        return context

    def end(self, request_id: str, uid: int = ANNA) -> None:
        self.in_flight.remove(self.come(request_id, uid))

    def ask(
        self,
        request_id: str | None = None,
        owner: int | None = None,
        number: int | UnsetType = UNSET,
    ) -> Reply:
        command = Command(command="explain", id=request_id, number=number)
        return explain(command, self.in_flight, owner)

    def told(
        self,
        request_id: str | None = None,
        owner: int | None = None,
        number: int | UnsetType = UNSET,
    ) -> list[tuple[int, str]]:
        records: list[ExplainedRequest] = []
        found = self.ask(request_id, owner, number=number).explained
        records += found or []
        return [(each.number, each.phase) for each in records]


async def test_those_that_are_present_come_before_those_that_ended_newest_first():
    register = Register()
    register.end("a")
    register.come("a")
    register.end("b")
    register.come("a").started()
    assert register.told("a") == [(4, "running"), (2, "queued"), (1, "ended")]
    assert register.told() == [
        (4, "running"),
        (2, "queued"),
        (3, "ended"),
        (1, "ended"),
    ]
    assert register.told(number=3) == [(3, "ended")]
    assert register.told("b", number=1) == []


async def test_a_user_is_told_of_own_requests_alone():
    register = Register()
    register.end("r", ANNA)
    register.end("r", BERT)
    register.come("r", BERT)
    assert register.told("r", ANNA) == [(1, "ended")]
    assert register.told(None, 3) == []
    assert register.ask("r", 3).error == (
        'no request with the id "r" is known: none that has ended is kept'
    )


async def test_an_unknown_id_is_told_how_far_back_the_records_go():
    register = Register()
    for request_id in "ab":
        register.end(request_id)
    reply = register.ask("\x1b" + "x" * 100, number=7)
    assert not reply.ok
    assert reply.error == (
        f'no request with the id "\\u001b{"x" * 63}" and the number 7 is known: of those '
        "that have ended the last 2 are kept, since 2023-11-14 22:13:20 UTC"
    )


async def test_a_reply_has_so_many_and_says_what_it_leaves_out():
    register = Register()
    for n in range(MAX_LISTED_EXPLAINED):
        register.come(f"p{n}")
        register.end(f"e{n}")
    reply = register.ask()
    assert reply.explained is not UNSET
    assert {each.phase for each in reply.explained} == {"queued"}
    assert (len(reply.explained), reply.omitted) == (MAX_LISTED_EXPLAINED,) * 2


async def test_a_long_id_is_found_by_its_whole():
    register = Register()
    register.end("i" * 1000)
    assert register.told("i" * 1000) == [(1, "ended")]
