import trio

from inferd import surfaces
from inferd.server.identity.peer import Peer
from inferd.server.request_context import RequestContext
from inferd.server.telemetry.metrics import Metrics
from tests.fakes.backend import ScriptedBackend
from tests.fakes.output import Spoken
from tests.unit.server.telemetry.test_metrics import value

PEER = Peer(pid=17, uid=1000, gid=100)
SOCKET = {"socket": "infer.sock"}


def begin() -> RequestContext:
    context = RequestContext(PEER, surfaces.INFER, "r", trio.current_time())
    context.backend = "chat"
    return context


async def test_an_answer_is_timed_from_arrival_and_between_its_tokens(autojump_clock):
    metrics = Metrics()
    context = begin()
    await trio.sleep(2)
    context.started()
    context.output = Spoken(5, trio.current_time())
    await trio.sleep(1)
    context.steps.left_at = trio.current_time()
    context.steps.note_stall(0.5)
    await trio.sleep(4)
    context.done("end")
    metrics.count(context)
    assert value(metrics, "inferd_queue_seconds_sum", **SOCKET) == 2
    assert value(metrics, "inferd_request_seconds_sum", **SOCKET) == 7
    assert value(metrics, "inferd_token_seconds_sum", backend="chat") == 0.25
    assert value(metrics, "inferd_stalled_seconds_total", **SOCKET) == 0.5


async def test_what_was_not_answered_is_not_timed_as_an_answer(autojump_clock):
    metrics = Metrics()
    for outcome in ("abandoned", "queue_full"):
        context = begin()
        context.outcome = outcome
        metrics.count(context)
    for name in ("queue", "request"):
        assert value(metrics, f"inferd_{name}_seconds_count", **SOCKET) is None


async def test_backends_are_looked_at_whenever_the_metrics_are():
    metrics = Metrics()
    backend = ScriptedBackend()
    metrics.backends.backends = [backend]
    assert value(metrics, "inferd_backend_failed", backend=backend.name) == 0
    assert value(metrics, "inferd_worker_resident_bytes", backend=backend.name) is None
    metrics.backends.backends = []
    assert value(metrics, "inferd_backend_failed", backend=backend.name) is None


async def test_the_process_tells_its_memory_and_its_beginning():
    metrics = Metrics()
    assert (value(metrics, "inferd_resident_bytes") or 0) > 1_000_000
    assert (value(metrics, "inferd_started_seconds") or 0) > 1_700_000_000
    assert metrics.read("resident_bytes") > 1_000_000
    assert metrics.read("no such gauge") == 0
