import pytest
import trio
from hypothesis import given, settings, strategies as st
from structlog.testing import capture_logs

from inferd import surfaces
from inferd.errors import BackendUnavailableError, ModelNotFoundError, QueueFullError
from inferd.server.fd_passing.quota import NO_FDS, FdQuota, LineFds
from inferd.server.identity.mapping import Identity
from inferd.server.identity.peer import Peer
from inferd.server.media.append_queue import AppendQueue
from inferd.server.request_context import ID_CHARS, RequestContext
from inferd.wire.speech import AppendLine
from tests.fakes.fds import memfd
from tests.fakes.output import Spoken
from tests.fakes.streams import BY_SOCKET

PEER = Peer(pid=17, uid=1000, gid=100)
ARRIVED_NS = 1_700_000_000_123_456_789


def begin(request_id: str = "r") -> RequestContext:
    return RequestContext(
        PEER, surfaces.INFER, request_id, trio.current_time(), arrived_ns=ARRIVED_NS
    )


def speak(context: RequestContext):
    context.output.first_token_at = trio.current_time()


async def test_a_uid_that_counts_as_another_is_logged_with_it(autojump_clock):
    context = begin()
    context.peer = Peer(17, 100_001, 1, identity=Identity(1000, 1000))
    with capture_logs() as log:
        context.done("length")
    assert (log[0]["peer_uid"], log[0]["peer_owner"]) == (100_001, 1000)


# --- the line of the log ----------------------------------------------------------------


async def test_an_answered_request_is_one_line_with_everything(autojump_clock):
    context = begin()
    context.backend = "chat"
    context.input_tokens = 5
    context.output = Spoken(7)
    await trio.sleep(1)
    context.started()
    await trio.sleep(0.5)
    speak(context)
    await trio.sleep(2)
    with capture_logs() as log:
        context.done("length")
    assert context.outcome == "length"
    assert log == [
        {
            "event": "request_done",
            "log_level": "info",
            "req_id": "r",
            "backend": "chat",
            "socket": "infer.sock",
            "peer": "unix:1000:17",
            "peer_uid": 1000,
            "peer_pid": 17,
            "queued_ms": 1000.0,
            "first_token_ms": 1500.0,
            "total_ms": 3500.0,
            "stop_reason": "length",
            "prompt_tokens": 5,
            "completion_tokens": 7,
        }
    ]


async def test_a_refusal_is_logged_with_its_code_and_known_fields(autojump_clock):
    context = begin()
    await trio.sleep(2)
    with capture_logs() as log:
        context.refused(QueueFullError(depth=3))
    [line] = log
    assert (line["event"], line["log_level"]) == ("request_refused", "warning")
    assert line["code"] == context.outcome == "queue_full"
    assert line["queued_ms"] == line["total_ms"] == 2000
    assert "backend" not in line
    assert "first_token_ms" not in line


async def test_a_question_for_the_names_of_models_is_no_failure(autojump_clock):
    with capture_logs() as log:
        for model in ("?", "x"):
            begin().refused(ModelNotFoundError(model, "is not served here", ["chat"]))
    assert [(line["event"], line["log_level"]) for line in log] == [
        ("models_listed", "info"),
        ("request_refused", "warning"),
    ]


@pytest.mark.parametrize(
    ("leaf", "version", "tokens"),
    [
        ("infer.v2.sock", "v2", {"input_tokens": 5, "output_tokens": 7}),
        ("infer.embed.sock", "embed", {"input_tokens": 5}),
        ("infer.rerank.sock", "rerank", {"input_tokens": 5}),
    ],
)
async def test_other_sockets_log_their_protocol_s_names(leaf, version, tokens):
    context = RequestContext(PEER, BY_SOCKET[leaf], "r", trio.current_time())
    context.backend, context.input_tokens = "chat", 5
    context.output = Spoken(7)
    context.stats["n_inputs"] = 3
    with capture_logs() as log:
        context.done("end")
        context.refused(QueueFullError(depth=3))
        context.abandoned()
    names = ("done", "refused", "abandoned")
    assert [line["event"] for line in log] == [f"{version}_request_{n}" for n in names]
    for line in log:
        assert (line["wire_version"], line["n_inputs"]) == (version, 3)
        assert {k: line[k] for k in line if k.endswith("_tokens")} == tokens


async def test_a_failure_while_running_is_logged_apart_from_a_refusal():
    context = begin()
    context.started()
    with capture_logs() as log:
        context.refused(BackendUnavailableError("secret"))
    [line] = log
    assert line["event"] == "request_error_mid_stream"
    assert (line["log_level"], line["code"]) == ("warning", "backend_unavailable")


async def test_a_request_whose_client_left_is_a_line_of_its_own(autojump_clock):
    context = begin()
    with capture_logs() as log:
        context.abandoned()
    [line] = log
    assert (line["event"], line["peer_uid"]) == ("request_abandoned", 1000)
    assert context.outcome == "abandoned"


async def test_descriptors_and_appends_are_counted_in_the_log(autojump_clock):
    context = begin()
    context.line_fds = LineFds(FdQuota(10))
    context.line_fds.add((memfd(),), is_cut=False)
    context.appends = AppendQueue(frozenset({"s"}))
    line = AppendLine(id="r", attachment_id="s", bytes="c2VjcmV0")
    context.appends.put(line, 70, NO_FDS)
    with capture_logs() as log:
        context.abandoned()
    context.release()
    assert (log[0]["n_fds"], log[0]["appended_bytes"]) == (1, 70)
    assert "c2VjcmV0" not in str(log)
    assert not context.fds


async def test_a_time_of_0_is_logged(autojump_clock):
    context = begin()
    context.started()
    speak(context)
    await trio.sleep(3)
    with capture_logs() as log:
        context.done("end")
    assert (log[0]["queued_ms"], log[0]["first_token_ms"]) == (0, 0)


async def test_an_id_of_any_length_takes_a_bounded_line():
    with capture_logs() as log:
        begin("x" * 1_000_000).abandoned()
    assert log[0]["req_id"] == "x" * ID_CHARS


# --- timing -----------------------------------------------------------------------------


async def test_timing_has_each_phase_and_the_timestamps(autojump_clock):
    context = begin()
    await trio.sleep(1)
    context.started()
    await trio.sleep(0.5)
    speak(context)
    await trio.sleep(2)
    timing = context.timing(9)
    assert (timing.queued_ms, timing.prefill_ms, timing.decode_ms) == (1000, 500, 2000)
    assert (timing.first_token_ms, timing.total_ms) == (1500, 3500)
    assert timing.tokens_per_second == 4
    assert timing.arrived_ns == ARRIVED_NS
    assert timing.started_ns == ARRIVED_NS + 1_000_000_000
    assert timing.finished_ns == ARRIVED_NS + 3_500_000_000


async def test_a_request_that_never_ran_spent_all_its_time_in_the_queue(autojump_clock):
    context = begin()
    await trio.sleep(2)
    timing = context.timing(0)
    assert (timing.queued_ms, timing.first_token_ms, timing.total_ms) == (2000,) * 3
    assert (timing.prefill_ms, timing.decode_ms) == (0, 0)
    assert timing.started_ns == timing.finished_ns == ARRIVED_NS + 2_000_000_000


async def test_a_request_without_a_token_spent_the_rest_of_its_time_in_prefill(
    autojump_clock,
):
    context = begin()
    await trio.sleep(1)
    context.started()
    await trio.sleep(2)
    timing = context.timing(0)
    assert (timing.queued_ms, timing.prefill_ms, timing.decode_ms) == (1000, 2000, 0)


async def test_one_token_or_no_time_has_no_speed(autojump_clock):
    context = begin()
    speak(context)
    assert context.timing(5).tokens_per_second == 0
    await trio.sleep(1)
    assert context.timing(1).tokens_per_second == 0
    assert context.timing(0).tokens_per_second == 0


SECONDS = st.floats(0, 1e6)


@pytest.mark.slow
@settings(max_examples=100)
@given(SECONDS, SECONDS, SECONDS, st.integers(0, 10_000))
def test_the_parts_make_up_the_whole(queued_s, prefill_s, decode_s, n_tokens):
    async def main():
        context = begin()
        await trio.sleep(queued_s)
        context.started()
        await trio.sleep(prefill_s)
        speak(context)
        await trio.sleep(decode_s)
        return context.timing(n_tokens)

    timing = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    parts = timing.queued_ms + timing.prefill_ms + timing.decode_ms
    assert abs(parts - timing.total_ms) < 0.002
    assert abs(timing.queued_ms + timing.prefill_ms - timing.first_token_ms) < 0.002
    assert timing.arrived_ns <= timing.started_ns <= timing.finished_ns
    assert timing.tokens_per_second >= 0


# --- its end ----------------------------------------------------------------------------


async def test_a_deadline_counts_from_arrival(autojump_clock):
    context = begin()
    await trio.sleep(1)
    context.set_deadline(3000)
    with context.scope:
        await trio.sleep_forever()
    assert trio.current_time() == 3
    assert not context.is_cancelled


async def test_without_a_deadline_the_time_is_unlimited(autojump_clock):
    context = begin()
    context.set_deadline(None)
    with context.scope:
        await trio.sleep(80_000)
    assert not context.scope.cancelled_caught


async def test_a_cancel_counts_before_and_while_it_is_served(autojump_clock, nursery):
    waiting, running = begin(), begin()
    waiting.cancel()
    with waiting.scope:
        await trio.sleep(1)
    nursery.start_soon(cancel_soon, running)
    with running.scope:
        await trio.sleep_forever()
    assert trio.current_time() == 5
    assert waiting.is_cancelled
    assert running.is_cancelled


async def cancel_soon(context: RequestContext):
    await trio.sleep(5)
    context.cancel()
