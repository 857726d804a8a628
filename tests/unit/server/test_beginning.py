import trio

from inferd.server.beginning import Beginning
from inferd.server.custody import Custody, Parcel
from inferd.server.metrics import Metrics
from inferd.server.peer import Peer
from inferd.server.register import Register
from inferd.wire.codec import decode_blocks
from tests.fakes.fds import memfd
from tests.fakes.streams import blocks

PEER = Peer(pid=17, uid=1000, gid=100)
SOUND = {"kind": "audio", "id": "s", "sample_rate": 16000, "open": True}


async def test_a_request_is_on_the_register_from_when_it_was_read(autojump_clock):
    register = Register(Metrics())
    beginning = Beginning(register, PEER, "infer.v2.sock", lambda: 60, list)
    parcel = Parcel(Custody(10))
    parcel.add((memfd(),), is_cut=False)
    await trio.sleep(5)
    request = decode_blocks(blocks("a", attachments=[SOUND]))
    activity = beginning.of(request, 200, parcel)
    assert [*register] == [activity]
    assert (activity.peer, activity.socket) == (PEER, "infer.v2.sock")
    assert (activity.request_id, activity.n_bytes) == ("a", 200)
    assert activity.arrived_at == trio.current_time()
    assert activity.appends.takes("s")
    assert activity.fds == parcel.fds
    activity.free()
    assert activity.fds == ()
