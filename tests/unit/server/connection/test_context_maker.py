import trio

from inferd import surfaces
from inferd.server.connection.serve import context_maker
from inferd.server.fd_passing.quota import FdQuota, LineFds
from inferd.server.identity.peer import Peer
from inferd.wire.codec import decode_blocks
from tests.fakes.fds import memfd
from tests.fakes.serving import LocalServer
from tests.fakes.streams import blocks

PEER = Peer(pid=17, uid=1000, gid=100)
SOUND = {"kind": "audio", "id": "s", "sample_rate": 16000, "open": True}


async def test_a_request_is_in_flight_from_when_it_was_read(autojump_clock):
    deps = LocalServer().deps
    make_context = context_maker(deps, PEER, surfaces.V2, list)
    line_fds = LineFds(FdQuota(10))
    line_fds.add((memfd(),), is_cut=False)
    await trio.sleep(5)
    request = decode_blocks(blocks("a", attachments=[SOUND]))
    context = make_context(request, 200, line_fds)
    assert [*deps.in_flight] == [context]
    assert (context.peer, context.socket) == (PEER, "infer.v2.sock")
    assert (context.request_id, context.n_bytes) == ("a", 200)
    assert context.arrived_at == trio.current_time()
    assert context.appends.takes("s")
    assert context.fds == line_fds.fds
    context.release()
    assert context.fds == ()


async def test_an_invalid_line_is_counted_and_never_in_flight(autojump_clock):
    async with LocalServer().opened() as server, server.connect("infer.sock") as client:
        await client.send(b"{\n")
        await client.answer()
        assert [*server.in_flight] == []
    counted = 'inferd_requests_total{outcome="invalid_request",socket="infer.sock"} 1.0'
    assert counted in server.metrics.text()
