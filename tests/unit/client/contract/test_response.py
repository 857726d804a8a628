import time

import pytest

from inferd.client.contract import Response, ResponseChunk
from tests.cases import each_case

MS = 1_000_000


@pytest.fixture
def clock(monkeypatch):
    """Set what the clocks say, in milliseconds."""

    def set_clock(at_ms: int) -> None:
        monkeypatch.setattr(time, "monotonic_ns", lambda: at_ms * MS)

    monkeypatch.setattr(time, "time_ns", lambda: 1_795_000_000_000_000_000)
    set_clock(0)
    return set_clock


def test_text_and_tokens_are_replaced_and_appended():
    response = Response("req-123")
    response.set_text("Once upon a time")
    response.append_text(" in a land far away")
    assert response.get_text() == "Once upon a time in a land far away"
    response.add_token(1234)
    response.set_tokens([1234, 5678])
    response.add_token(9012)
    assert response.get_tokens() == (1234, 5678, 9012)
    assert response.get_output_token_count() == 3
    response.set_input_token_count(5)
    assert response.get_input_token_count() == 5
    assert response.get_request_id() == "req-123"


def test_log_probabilities_are_kept_with_their_alternatives():
    response = Response("r")
    response.set_logprobs([-2.3, -1.5])
    response.add_top_k_for_token([(1234, -2.3), (5678, -4.1)])
    response.add_top_k_for_token([(9012, -1.5), (3456, -3.2)])
    assert response.get_logprobs() == (-2.3, -1.5)
    assert response.get_top_k_logprobs() == (
        ((1234, -2.3), (5678, -4.1)),
        ((9012, -1.5), (3456, -3.2)),
    )


@each_case(
    ("reason", "asked"),
    [
        ("end_of_sequence", Response.has_stopped_by_eos),
        ("max_tokens", Response.has_stopped_by_max_tokens),
        ("stop_string", Response.has_stopped_by_stop_string),
        ("stop_token", Response.has_stopped_by_stop_token),
        ("user_cancelled", Response.has_stopped_by_user),
        ("error", Response.has_error),
        ("unknown", None),
    ],
)
def test_each_reason_of_an_end_is_told_alone(reason, asked):
    response = Response("r")
    assert not response.is_finished()
    response.finish(reason)
    assert response.is_finished()
    assert response.get_completion_reason() == reason
    all_asked = (
        *(Response.has_stopped_by_eos, Response.has_stopped_by_max_tokens),
        *(Response.has_stopped_by_stop_string, Response.has_stopped_by_stop_token),
        *(Response.has_stopped_by_user, Response.has_error),
    )
    assert [each for each in all_asked if each(response)] == [
        each for each in [asked] if each
    ]


def test_an_error_keeps_what_was_generated_before():
    response = Response("r")
    response.append_text("half")
    response.set_error("out of memory")
    response.finish()
    assert response.has_error()
    assert response.get_completion_reason() == "error"
    assert (response.get_error_message(), response.get_text()) == (
        "out of memory",
        "half",
    )


def test_times_are_told_in_all_units_with_what_follows_from_them(clock):
    response = Response("r")
    assert (response.get_start_time_ns(), response.get_end_time_ns()) == (
        1_795_000_000_000_000_000,
        0,
    )
    clock(100)
    assert response.get_latency_ns() == 100 * MS  # until now
    response.add_token(1)
    clock(500)
    response.add_token(2)
    response.set_stopped_by_eos()
    response.finish()
    clock(900)
    assert response.has_stopped_by_eos()
    assert response.get_end_time_ns() == response.get_start_time_ns() + 500 * MS
    assert (response.get_latency_ns(), response.get_latency_ms()) == (500 * MS, 500.0)
    assert response.get_latency_sec() == 0.5
    assert response.get_tokens_per_second() == 4.0
    assert response.get_average_token_latency_ms() == 250.0
    assert response.get_prefill_latency_ns() == 100 * MS
    assert response.get_decode_latency_ns() == 400 * MS


def test_without_tokens_nothing_is_divided_by_zero(clock):
    response = Response("r")
    assert response.get_tokens_per_second() == 0
    assert response.get_average_token_latency_ms() == 0
    assert response.get_decode_latency_ns() == 0


def test_a_line_sums_it_up(clock):
    response = Response("req-123")
    response.set_tokens(range(42))
    clock(523)
    response.finish("end_of_sequence")
    assert response.to_string() == str(response)
    assert response.to_string() == (
        "Response(requestId=req-123, tokens=42, finished=true, latencyMs=523.0, "
        "reason=end_of_sequence)"
    )


def test_a_chunk_has_its_four_fields():
    chunk = ResponseChunk("req-123", 1234, "Once", finished=False)
    assert (chunk.request_id, chunk.token) == ("req-123", 1234)
    assert (chunk.text_piece, chunk.finished) == ("Once", False)
