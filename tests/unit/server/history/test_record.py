import trio
from msgspec import UNSET

from inferd import surfaces
from inferd.admission.control import Admission, RequestTraits
from inferd.backend.caller import Caller
from inferd.backend.interface import CacheReuse
from inferd.limits.server import RECORD_BYTES
from inferd.server.history.record import life_of, record_of
from inferd.server.identity.peer import Peer
from inferd.server.queue.notes import QueueNotes
from inferd.server.queue.requests import RequestQueue
from inferd.server.request_context import RequestContext
from inferd.wire.observed import PermitHolder
from tests.fakes.output import Spoken

PEER = Peer(pid=17, uid=1000, gid=100)


def begin() -> RequestContext:
    return RequestContext(PEER, surfaces.INFER, "r", trio.current_time(), 7)


async def test_each_step_takes_from_the_end_of_the_one_before(autojump_clock):
    context = begin()
    queue = RequestQueue(Admission(max_active=1, max_queued=3))
    await trio.sleep(1)
    with queue.admitted(RequestTraits()) as permit, context.queued(permit, "chat"):
        await trio.sleep(2)
        context.steps.loaded_at = trio.current_time()
        await trio.sleep(4)
        context.steps.prepared_at = trio.current_time()
        context.input_tokens = 9
        await trio.sleep(8)
        context.started()
        await trio.sleep(16)
        context.output = Spoken(
            5, trio.current_time(), reuse=CacheReuse(cached_tokens=4)
        )
        await trio.sleep(32)
    await trio.sleep(64)
    context.outcome = "end"
    record = record_of(life_of(context, has_ended=True))
    assert (record.reading_ms, record.loading_ms) == (1000, 2000)
    assert (record.preparing_ms, record.waiting_ms) == (4000, 8000)
    assert (record.prefill_ms, record.decode_ms) == (16_000, 32_000)
    assert (record.first_token_ms, record.run_ms) == (31_000, 48_000)
    assert (record.total_ms, record.outcome) == (127_000, "end")
    assert (record.cached_tokens, record.tokens_per_second) == (4, 0.125)
    assert record.waited_for is UNSET


async def test_what_has_not_happened_is_missing(autojump_clock):
    context = begin()
    await trio.sleep(1)
    record = record_of(life_of(context, has_ended=False))
    assert (record.phase, record.total_ms) == ("queued", 1000)
    told = {
        name for name in record.__struct_fields__ if getattr(record, name) is not UNSET
    }
    assert told == {
        *("number", "id", "uid", "pid", "socket", "phase", "received_ns"),
        *("line_bytes", "total_ms"),
    }


async def test_who_waits_is_told_behind_whom(autojump_clock):
    queue = RequestQueue(Admission(max_active=2, max_queued=3, quantum_s=1))
    ann, bob = RequestTraits(caller=Caller(1)), RequestTraits(caller=Caller(2, "bob"))
    context = begin()
    with queue.admitted(ann), queue.admitted(ann), queue.admitted(bob) as permit:
        with context.queued(permit, "chat"):
            permit.set_position(2)
            permit.set_position(1)
            record = record_of(life_of(context, has_ended=False))
    assert record.waited_for == [PermitHolder(uid=1, requests=2)]
    assert (record.n_waiting, record.positions) == (0, [2, 1])
    assert life_of(context, has_ended=True).n_bytes_kept > RECORD_BYTES


async def test_notes_are_bounded():
    notes = QueueNotes()
    notes.waits(Caller(n % 100) for n in range(1000))
    for position in range(100, 0, -1):
        notes.moved(position)
    assert [*notes.holders.values()] == [10] * 8
    assert notes.positions == [*range(100, 85, -1), 1]
