import pytest
import trio
from hypothesis import given, settings, strategies as st
from structlog.testing import capture_logs

from inferd.errors import BackendUnavailableError, QueueFullError
from inferd.server.activity import ID_CHARS, Activity
from inferd.server.appends import Appends
from inferd.server.custody import NOTHING, Custody, Parcel
from inferd.server.identity import Identity
from inferd.server.peer import Peer
from inferd.wire.speech import AppendLine
from tests.fakes.fds import memfd
from tests.fakes.output import Spoken

PEER = Peer(pid=17, uid=1000, gid=100)
ARRIVED_NS = 1_700_000_000_123_456_789


def begin(request_id: str = "r") -> Activity:
    return Activity(
        PEER, "infer.sock", request_id, trio.current_time(), arrived_ns=ARRIVED_NS
    )


def speak(activity: Activity):
    activity.output.first_token_at = trio.current_time()


async def test_a_uid_that_counts_as_another_is_logged_with_it(autojump_clock):
    activity = begin()
    activity.peer = Peer(17, 100_001, 1, identity=Identity(1000, 1000))
    with capture_logs() as log:
        activity.done("length")
    assert (log[0]["peer_uid"], log[0]["peer_owner"]) == (100_001, 1000)


# --- the line of the log ----------------------------------------------------------------


async def test_an_answered_request_is_one_line_with_everything(autojump_clock):
    activity = begin()
    activity.backend = "chat"
    activity.input_tokens = 5
    activity.output = Spoken(7)
    await trio.sleep(1)
    activity.started()
    await trio.sleep(0.5)
    speak(activity)
    await trio.sleep(2)
    with capture_logs() as log:
        activity.done("length")
    assert activity.outcome == "length"
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


async def test_a_refusal_says_its_code_and_what_is_known(autojump_clock):
    activity = begin()
    await trio.sleep(2)
    with capture_logs() as log:
        activity.refused(QueueFullError(depth=3))
    [line] = log
    assert (line["event"], line["log_level"]) == ("request_refused", "warning")
    assert line["code"] == activity.outcome == "queue_full"
    assert line["queued_ms"] == line["total_ms"] == 2000
    assert "backend" not in line
    assert "first_token_ms" not in line


@pytest.mark.parametrize(
    ("leaf", "version", "tokens"),
    [
        ("infer.v2.sock", "v2", {"input_tokens": 5, "output_tokens": 7}),
        ("infer.embed.sock", "embed", {"input_tokens": 5}),
        ("infer.rerank.sock", "rerank", {"input_tokens": 5}),
    ],
)
async def test_another_socket_has_the_wires_names(leaf, version, tokens):
    activity = Activity(PEER, leaf, "r", trio.current_time())
    activity.backend, activity.input_tokens = "chat", 5
    activity.output = Spoken(7)
    activity.facts["n_inputs"] = 3
    with capture_logs() as log:
        activity.done("end")
        activity.refused(QueueFullError(depth=3))
        activity.abandoned()
    names = ("done", "refused", "abandoned")
    assert [line["event"] for line in log] == [f"{version}_request_{n}" for n in names]
    for line in log:
        assert (line["wire_version"], line["n_inputs"]) == (version, 3)
        assert {k: line[k] for k in line if k.endswith("_tokens")} == tokens


async def test_what_fails_in_its_turn_is_told_from_what_is_refused():
    activity = begin()
    activity.started()
    with capture_logs() as log:
        activity.refused(BackendUnavailableError("secret"))
    [line] = log
    assert line["event"] == "request_error_mid_stream"
    assert (line["log_level"], line["code"]) == ("warning", "backend_unavailable")


async def test_a_request_whose_client_left_is_a_line_of_its_own(autojump_clock):
    activity = begin()
    with capture_logs() as log:
        activity.abandoned()
    [line] = log
    assert (line["event"], line["peer_uid"]) == ("request_abandoned", 1000)
    assert activity.outcome == "abandoned"


async def test_what_came_along_and_after_is_counted_and_not_repeated(autojump_clock):
    activity = begin()
    activity.parcel = Parcel(Custody(10))
    activity.parcel.add((memfd(),), is_cut=False)
    activity.appends = Appends(frozenset({"s"}))
    line = AppendLine(id="r", attachment_id="s", bytes="c2VjcmV0")
    activity.appends.put(line, 70, NOTHING)
    with capture_logs() as log:
        activity.abandoned()
    activity.free()
    assert (log[0]["n_fds"], log[0]["appended_bytes"]) == (1, 70)
    assert "c2VjcmV0" not in str(log)
    assert not activity.fds


async def test_a_time_of_nought_is_a_time(autojump_clock):
    activity = begin()
    activity.started()
    speak(activity)
    await trio.sleep(3)
    with capture_logs() as log:
        activity.done("end")
    assert (log[0]["queued_ms"], log[0]["first_token_ms"]) == (0, 0)


async def test_an_id_of_any_length_takes_a_bounded_line():
    with capture_logs() as log:
        begin("x" * 1_000_000).abandoned()
    assert log[0]["req_id"] == "x" * ID_CHARS


# --- timing -----------------------------------------------------------------------------


async def test_timing_tells_each_part_and_the_moments(autojump_clock):
    activity = begin()
    await trio.sleep(1)
    activity.started()
    await trio.sleep(0.5)
    speak(activity)
    await trio.sleep(2)
    timing = activity.timing(9)
    assert (timing.queued_ms, timing.prefill_ms, timing.decode_ms) == (1000, 500, 2000)
    assert (timing.first_token_ms, timing.total_ms) == (1500, 3500)
    assert timing.tokens_per_second == 4
    assert timing.arrived_ns == ARRIVED_NS
    assert timing.started_ns == ARRIVED_NS + 1_000_000_000
    assert timing.finished_ns == ARRIVED_NS + 3_500_000_000


async def test_what_never_began_took_all_of_its_time_in_the_queue(autojump_clock):
    activity = begin()
    await trio.sleep(2)
    timing = activity.timing(0)
    assert (timing.queued_ms, timing.first_token_ms, timing.total_ms) == (2000,) * 3
    assert (timing.prefill_ms, timing.decode_ms) == (0, 0)
    assert timing.started_ns == timing.finished_ns == ARRIVED_NS + 2_000_000_000


async def test_what_never_spoke_took_the_rest_of_its_time_to_prefill(autojump_clock):
    activity = begin()
    await trio.sleep(1)
    activity.started()
    await trio.sleep(2)
    timing = activity.timing(0)
    assert (timing.queued_ms, timing.prefill_ms, timing.decode_ms) == (1000, 2000, 0)


async def test_one_token_or_no_time_has_no_speed(autojump_clock):
    activity = begin()
    speak(activity)
    assert activity.timing(5).tokens_per_second == 0
    await trio.sleep(1)
    assert activity.timing(1).tokens_per_second == 0
    assert activity.timing(0).tokens_per_second == 0


SECONDS = st.floats(0, 1e6)


@pytest.mark.slow
@settings(max_examples=100)
@given(SECONDS, SECONDS, SECONDS, st.integers(0, 10_000))
def test_the_parts_make_up_the_whole(queued_s, prefill_s, decode_s, n_tokens):
    async def main():
        activity = begin()
        await trio.sleep(queued_s)
        activity.started()
        await trio.sleep(prefill_s)
        speak(activity)
        await trio.sleep(decode_s)
        return activity.timing(n_tokens)

    timing = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    parts = timing.queued_ms + timing.prefill_ms + timing.decode_ms
    assert abs(parts - timing.total_ms) < 0.002
    assert abs(timing.queued_ms + timing.prefill_ms - timing.first_token_ms) < 0.002
    assert timing.arrived_ns <= timing.started_ns <= timing.finished_ns
    assert timing.tokens_per_second >= 0


# --- its end ----------------------------------------------------------------------------


async def test_a_time_that_is_allowed_counts_from_arrival(autojump_clock):
    activity = begin()
    await trio.sleep(1)
    activity.allow(3000)
    with activity.scope:
        await trio.sleep_forever()
    assert trio.current_time() == 3
    assert not activity.is_cancelled


async def test_without_an_allowance_there_is_all_the_time(autojump_clock):
    activity = begin()
    activity.allow(None)
    with activity.scope:
        await trio.sleep(80_000)
    assert not activity.scope.cancelled_caught


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


async def cancel_soon(activity: Activity):
    await trio.sleep(5)
    activity.cancel()
