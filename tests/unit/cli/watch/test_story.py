from typing import Any

from hypothesis import given, settings, strategies as st
from msgspec import UNSET

from inferd.cli.watch.story import HEAD, duration, row, story
from inferd.wire.observed import ExplainedRequest, PermitHolder
from tests.cases import each_case

BASE: dict[str, Any] = {
    "number": 7,
    "id": "r",
    "uid": 1000,
    "pid": 17,
    "socket": "infer.sock",
    "phase": "ended",
    "received_ns": 1_700_000_000_123_000_000,
    "line_bytes": 90,
    "outcome": "end",
    "total_ms": 3210.0,
}
RECEIVED = (
    "  received 22:13:20.123 UTC on infer.sock from uid 1000 for ann, pid 17: 90 bytes, "
    "asked for best, backend chat"
)
WAITED = (
    "  waited 1.50 s to run; 3 waited before it; the permits had uid 1001 (2 requests), "
    "uid 1000 for bob; position 3, 1"
)


def test_a_whole_life_is_told_step_by_step():
    record = ExplainedRequest(
        **BASE,
        principal="ann",
        model="best",
        backend="chat",
        reading_ms=2.0,
        loading_ms=1000.0,
        preparing_ms=12.5,
        input_tokens=512,
        cached_tokens=480,
        waiting_ms=1500.0,
        n_waiting=3,
        waited_for=[
            PermitHolder(uid=1001, requests=2),
            PermitHolder(uid=1000, principal="bob", requests=1),
        ],
        positions=[3, 1],
        pauses=1,
        paused_ms=200.0,
        run_ms=2000.0,
        prefill_ms=320.0,
        decode_ms=1400.0,
        output_tokens=100,
        tokens_per_second=70.714,
        stalls=2,
        stalled_ms=30.0,
    )
    assert [*story(record)] == [
        "request r (number 7): end after 3.21 s",
        RECEIVED,
        "  read in 2 ms, with those before it on its connection",
        "  waited 1.00 s for its model to be loaded",
        "  prepared in 12.5 ms: 512 tokens",
        WAITED,
        "  prefill 320 ms: 480 cached, 32 read, 100 tokens/s",
        "  decode 1.40 s: 100 tokens, 70.71 tokens/s",
        "  paused 1 times for others, 200 ms in all",
        "  its client read slowly: 2 waits, 30 ms in all",
        "  ended with end",
    ]


def test_a_refusal_has_few_lines():
    record = ExplainedRequest(**{**BASE, "outcome": "queue_full", "total_ms": 0.214})
    assert [*story(record)][::2] == [
        "request r (number 7): queue_full after 0.214 ms",
        "  ended with queue_full",
    ]


def test_a_present_request_is_told_as_present():
    present = {**BASE, "phase": "queued", "outcome": UNSET, "n_waiting": 0}
    lines = [*story(ExplainedRequest(**present))]
    assert lines[0] == "request r (number 7): queued for 3.21 s so far"
    assert lines[2:] == ["  waits to run; 0 waited before it", "  is queued"]


@settings(max_examples=20)
@given(st.integers(0, 200), st.text(max_size=130))
def test_a_row_is_no_wider_than_the_terminal(width: int, request_id: str):
    line = row(ExplainedRequest(**{**BASE, "id": request_id}), width)
    assert len(line) <= max(1, width)
    assert width < len(HEAD) or line.index("end") == HEAD.index("ended")


@each_case(
    ("ms", "text"),
    [
        (0.0, "0 ms"),
        (0.12345, "0.123 ms"),
        (999.4, "999 ms"),
        (999.6, "1.00 s"),
        (59_990.0, "59.99 s"),
        (61_000.0, "1 min 1 s"),
        (7_261_000.0, "121 min 1 s"),
    ],
)
def test_a_time_has_the_unit_that_it_is_read_in(ms, text):
    assert duration(ms) == text
