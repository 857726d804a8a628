import threading
import time
from datetime import UTC, datetime

import pytest

from inferd.client.contract import NO_TOKEN, Request, SamplingParams
from inferd.client.contract.engine import options_of, prompt_of
from tests.cases import each_case


def test_what_it_was_made_of_is_told():
    request = Request("req-123", "What is AI?", [1523, 373, 2154], 256, 2)
    assert request.get_id() == "req-123"
    assert request.get_prompt() == "What is AI?"
    assert request.get_input_tokens() == (1523, 373, 2154)
    assert request.get_input_token_count() == 3
    assert (request.get_max_tokens(), request.get_min_tokens()) == (256, 2)
    assert prompt_of(request) == [1523, 373, 2154]
    assert prompt_of(Request("r", "text")) == "text"


def test_what_is_set_is_told_and_sent():
    request = Request("r", "hi", (), 9, 1)
    request.set_sampling_params(
        SamplingParams(
            temperature=0.7, top_k=40, top_p=0.9, seed=42, repetition_penalty=1.2
        )
    )
    request.set_stop_tokens([2, 0])
    request.set_stop_string("\n")
    request.set_priority(5)
    request.set_allow_prefill_only(True)
    request.set_streaming(True)
    request.set_top_logprobs(3)
    request.set_model("m")
    request.set_max_tokens(8)
    assert (request.get_stop_tokens(), request.get_stop_string()) == ((2, 0), "\n")
    assert (request.get_priority(), request.get_top_logprobs()) == (5, 3)
    assert (request.get_model(), request.get_max_tokens()) == ("m", 8)
    assert request.allows_prefill_only()
    assert request.is_streaming_enabled()
    assert options_of(request) == {
        "token_ids": True,
        "progress": True,
        "max_tokens": 8,
        "min_tokens": 1,
        "priority": 5,
        "prefill_only": True,
        "stop_token_ids": [2, 0],
        "cache": "auto",
        "temperature": 0.7,
        "top_k": 40,
        "top_p": 0.9,
        "seed": 42,
        "repeat_penalty": 1.2,
        "stop": ["\n"],
        "logprobs": 3,
        "model": "m",
    }


def test_a_seed_of_0_is_random_and_what_is_not_set_is_the_models():
    options = options_of(Request("r", "hi"))
    for field in ("seed", "temperature", "top_k", "top_p", "repeat_penalty", "stop"):
        assert field not in options, field


@each_case(
    ("reuses", "frees", "use"),
    [
        (True, False, "auto"),
        (True, True, "discard"),
        (False, False, "off"),
        (False, True, "off"),
    ],
)
def test_the_cache_is_used_as_is_set(reuses, frees, use):
    request = Request("r", "hi")
    request.set_reuse_cache(reuses)
    request.set_free_cache_on_finish(frees)
    assert request.should_reuse_cache() is reuses
    assert request.should_free_cache_on_finish() is frees
    assert options_of(request).get("cache") == use


@each_case(("asked", "kept"), [(-99, -10), (-10, -10), (0, 0), (10, 10), (11, 10)])
def test_a_priority_beyond_the_protocols_is_the_nearest(asked, kept):
    request = Request("r")
    request.set_priority(asked)
    assert request.get_priority() == kept


def test_its_arrival_is_a_time_in_nanoseconds():
    before = time.time_ns()
    request = Request("r")
    assert before <= request.get_arrival_timestamp_ns() <= time.time_ns()
    assert request.get_arrival_time() <= datetime.now(UTC)


def test_tokens_are_counted_and_told_to_the_callback():
    told = []
    request = Request("r")
    request.set_token_callback(lambda token, finished: told.append((token, finished)))
    request.notify_token(1, False)
    request.set_streaming(True)
    request.add_generated_token(7)
    request.notify_token(7, False)
    request.notify_token(NO_TOKEN, True)
    assert told == [(7, False), (NO_TOKEN, True)]
    assert request.get_generated_tokens() == (7,)
    assert request.get_generated_token_count() == 1


def test_its_end_and_its_error_are_told():
    request = Request("r")
    assert (request.is_finished(), request.is_failed()) == (False, False)
    request.finish()
    assert (request.is_finished(), request.is_failed()) == (True, False)
    failed = Request("r")
    failed.finish("no memory")
    assert (failed.is_failed(), failed.get_error_message()) == (True, "no memory")


def test_it_is_cancelled_from_any_thread():
    request = Request("r")
    ended = threading.Event()
    with request.ended_by(ended.set):
        thread = threading.Thread(target=request.cancel)
        thread.start()
        thread.join()
    assert request.is_cancelled()
    assert ended.is_set()
    request.cancel()


def test_once_submitted_it_does_not_change():
    request = Request("r")
    request.submit()
    for change in (
        lambda: request.set_sampling_params(SamplingParams()),
        lambda: request.set_stop_tokens([1]),
        lambda: request.set_stop_string("x"),
        lambda: request.set_priority(1),
        lambda: request.set_allow_prefill_only(True),
        lambda: request.set_streaming(True),
        lambda: request.set_token_callback(None),
        lambda: request.set_reuse_cache(False),
        lambda: request.set_free_cache_on_finish(True),
        lambda: request.set_top_logprobs(1),
        lambda: request.set_max_tokens(1),
        lambda: request.set_model("m"),
        request.submit,
    ):
        with pytest.raises(RuntimeError, match="request r was submitted before"):
            change()
