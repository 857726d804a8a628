import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from inferd import surfaces
from inferd.errors import InvalidFrameError, QueueFullError
from inferd.server.identity.peer import Peer
from inferd.server.request_context import RequestContext
from inferd.server.telemetry.metrics import Metrics
from inferd.server.telemetry.request_counts import LATENCY_BUCKETS_S
from inferd.wire.responses import DraftCounts
from tests.fakes.output import Spoken
from tests.fakes.streams import BY_SOCKET

PEER = Peer(pid=17, uid=1000, gid=100)
Labels = dict[str, str]


def begin(socket: str = "infer.sock") -> RequestContext:
    return RequestContext(PEER, BY_SOCKET[socket], "secret-id", trio.current_time())


def samples(metrics: Metrics, name: str) -> list[tuple[Labels, float]]:
    """Read the text as a monitoring system does."""
    return [
        (dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(metrics.text())
        for sample in family.samples
        if sample.name == name
    ]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    found = [each for each in samples(metrics, name) if each[0] == labels]
    return found[0][1] if found else None


def test_before_anything_happened_the_text_can_be_read():
    assert samples(Metrics(), "inferd_requests_total") == []


async def test_requests_are_counted_by_socket_and_outcome():
    metrics = Metrics()
    for socket in ("infer.sock", "infer.sock", "infer.v2.sock"):
        context = begin(socket)
        context.done("end")
        metrics.count(context)
    refused = begin()
    refused.refused(QueueFullError(depth=3))
    metrics.count(refused)
    metrics.count(begin())
    counted = samples(metrics, "inferd_requests_total")
    told = {(labels["socket"], labels["outcome"]): n for labels, n in counted}
    assert told == {
        ("infer.sock", "end"): 2,
        ("infer.v2.sock", "end"): 1,
        ("infer.sock", "queue_full"): 1,
        ("infer.sock", "abandoned"): 1,
    }


def test_lines_that_are_no_request_are_counted_by_code():
    metrics = Metrics()
    for socket in ("infer.sock", "infer.sock", "infer.embed.sock"):
        metrics.count_invalid_line(socket, InvalidFrameError("secret"))
    name = "inferd_requests_total"
    refused = {"outcome": "invalid_request"}
    assert value(metrics, name, socket="infer.sock", **refused) == 2
    assert value(metrics, name, socket="infer.embed.sock", **refused) == 1
    assert "secret" not in metrics.text()


async def test_drafted_tokens_are_counted_by_whether_they_were_accepted():
    metrics = Metrics()
    for drafted, accepted in ((9, 4), (3, 3), (0, 0)):
        context = begin()
        context.backend = "chat"
        context.output = Spoken(
            draft_counts=DraftCounts(drafted_tokens=drafted, accepted_tokens=accepted)
        )
        metrics.count(context)
    name = "inferd_drafted_tokens_total"
    assert value(metrics, name, backend="chat", outcome="accepted") == 7
    assert value(metrics, name, backend="chat", outcome="rejected") == 5


async def test_audio_and_images_are_counted_if_there_are_any():
    metrics = Metrics()
    for facts in ({"audio_ms": 1500}, {"n_images": 2, "audio_ms": 500}, {}):
        context = begin()
        context.backend = "chat"
        context.stats.update(facts)
        metrics.count(context)
    assert value(metrics, "inferd_audio_seconds_total", backend="chat") == 2
    assert value(metrics, "inferd_images_total", backend="chat") == 2
    assert samples(Metrics(), "inferd_images_total") == []


async def test_without_drafted_tokens_there_is_no_count_of_them():
    metrics = Metrics()
    context = begin()
    context.backend = "chat"
    metrics.count(context)
    assert samples(metrics, "inferd_drafted_tokens_total") == []


async def test_tokens_are_counted_by_backend_and_kind():
    metrics = Metrics()
    for n_tokens in (2, 5):
        context = begin()
        context.backend = "chat"
        context.input_tokens = 10
        context.output = Spoken(n_tokens)
        metrics.count(context)
    metrics.count(begin())  # got no backend
    name = "inferd_tokens_total"
    assert value(metrics, name, backend="chat", kind="input") == 20
    assert value(metrics, name, backend="chat", kind="output") == 7
    assert len(samples(metrics, name)) == 2


async def test_the_time_to_the_first_token_is_observed_where_there_is_one(
    autojump_clock,
):
    metrics = Metrics()
    spoke, silent = begin(), begin()
    await trio.sleep(2)
    spoke.output = Spoken(1, trio.current_time())
    for context in (spoke, silent):
        metrics.count(context)
    name = "inferd_first_token_seconds"
    assert value(metrics, f"{name}_sum", socket="infer.sock") == 2
    assert value(metrics, f"{name}_count", socket="infer.sock") == 1
    buckets = {
        float(labels["le"]): n for labels, n in samples(metrics, f"{name}_bucket")
    }
    assert set(buckets) == {*LATENCY_BUCKETS_S, float("inf")}
    assert (buckets[1], buckets[3]) == (0, 1)


def test_deaths_are_counted_by_backend():
    metrics = Metrics()
    for name in ("a", "b", "a"):
        metrics.worker_died(name)
    assert value(metrics, "inferd_worker_deaths_total", backend="a") == 2
    assert value(metrics, "inferd_worker_deaths_total", backend="b") == 1


def test_a_watched_number_is_read_when_it_is_asked_for():
    metrics = Metrics()
    numbers = [3]
    metrics.add_gauge("places", "How many.", lambda: numbers[-1])
    assert value(metrics, "inferd_places") == 3
    numbers.append(4)
    assert value(metrics, "inferd_places") == 4


def test_two_daemons_in_one_process_count_apart():
    one, other = Metrics(), Metrics()
    one.worker_died("a")
    assert samples(other, "inferd_worker_deaths_total") == []


async def test_nothing_that_a_client_chose_is_in_the_text():
    metrics = Metrics()
    metrics.count(begin())
    assert "secret-id" not in metrics.text()


def test_every_metric_has_a_help_text():
    metrics = Metrics()
    metrics.add_gauge("places", "How many.", lambda: 0)
    for family in text_string_to_metric_families(metrics.text()):
        assert family.documentation
        assert family.name.startswith("inferd_")


@pytest.mark.parametrize("n_clients", [1, 50])
async def test_the_text_grows_with_kinds_of_requests_and_not_with_requests(n_clients):
    metrics = Metrics()
    for n in range(n_clients):
        metrics.count(
            RequestContext(Peer(n, n, n), surfaces.INFER, f"r{n}", trio.current_time())
        )
    assert len(samples(metrics, "inferd_requests_total")) == 1


def test_lines_that_the_log_lost_are_counted_by_sink_from_the_start():
    metrics = Metrics()
    metrics.line_lost("file")
    assert value(metrics, "inferd_log_lines_dropped_total", sink="file") == 1
    assert value(metrics, "inferd_log_lines_dropped_total", sink="stderr") == 0
