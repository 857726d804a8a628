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
from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.serving import LocalServer
from tests.fakes.streams import cancel, generate, to_line

ANNA = Peer(pid=1, uid=70_001, gid=100)
BERT = Peer(pid=2, uid=70_002, gid=100)
OPERATOR = None
CARL, DORA = (Peer(pid=n, uid=65534, gid=65534, overflow_id=n) for n in (3, 4))


async def test_a_cancel_on_one_connection_is_nothing_to_another(autojump_clock):
    backend = ScriptedBackend(Script(token_delay_s=5))
    async with LocalServer(backend, max_active=2).opened() as server:
        async with server.connect() as victim, server.connect() as stranger:
            await victim.send(generate("secret"))
            await stranger.send(cancel("secret") + generate("mine") + cancel("mine"))
            *_, theirs = await stranger.answer()
            *_, done = await victim.answer()
    assert (theirs["id"], theirs["stop_reason"]) == ("mine", "cancelled")
    assert (done["id"], done["stop_reason"]) == ("secret", "end")


@pytest.mark.parametrize(
    ("owner", "cancelled"),
    [(ANNA.owner, "a"), (CARL.owner, "c"), (DORA.owner, ""), (OPERATOR, "abc")],
)
async def test_an_id_means_the_requests_of_those_who_may_be_meant(owner, cancelled):
    register = InFlight(Metrics())
    now = trio.current_time()
    theirs = {
        "a": RequestContext(ANNA, surfaces.INFER, "same", now),
        "b": RequestContext(BERT, surfaces.INFER, "same", now),
        "c": RequestContext(CARL, surfaces.INFER, "same", now),
    }
    for activity in theirs.values():
        register.add(activity)
    assert register.cancel("same", owner=owner) == len(cancelled)
    assert "".join(key for key in theirs if theirs[key].is_cancelled) == cancelled


async def nothing_reloaded() -> ReloadResult:
    return ReloadResult([], [])


@pytest.mark.parametrize(("peer", "n_seen"), [(ANNA, 1), (BERT, 0), (DORA, 0)])
async def test_a_user_who_may_look_on_learns_no_ids_of_others(peer, n_seen):
    metrics = Metrics()
    register = InFlight(metrics)
    for owner in (ANNA, CARL):
        register.add(
            RequestContext(owner, surfaces.INFER, "secret", trio.current_time())
        )
    commands = Commands(
        in_flight=register,
        queue=RequestQueue(Admission(max_active=1, max_queued=1)),
        backends=[],
        metrics=metrics,
        drain=lambda: True,
        reload=nothing_reloaded,
    )
    reply = await commands.answer(to_line({"command": "requests"}), peer)
    assert len(reply.requests or []) == n_seen
    cancelled = await commands.answer(
        to_line({"command": "cancel", "id": "secret"}), peer
    )
    assert cancelled.ok is bool(n_seen)
