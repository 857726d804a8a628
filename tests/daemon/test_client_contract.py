"""The contract's engine against a real daemon."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from inferd.client import Client
from inferd.client.contract import (
    NO_TOKEN,
    InferenceEngine,
    Request,
    ResponseChunk,
)
from tests.daemon.fixtures import daemons
from tests.daemon.harness import DaemonProcess, eventually, mock
from tests.documents.pages import texts

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with daemons() as make:
        slow = mock(name="slow", tokens=["word "] * 10_000, token_delay_ms=20)
        dies = mock(name="dies", tokens=["a", "b"], die_after_tokens=1)
        plain = mock(tokens=["<think>", "hm", "</think>", "one ", "two"])
        yield make({"backend": [plain, slow, dies]}).start()


@pytest.fixture(scope="module")
def engine(daemon: DaemonProcess) -> Iterator[InferenceEngine]:
    with Client(daemon.directory) as client, InferenceEngine(client) as engine:
        yield engine


def asked(*tokens: int, model: str = "mock", max_tokens: int = 256) -> Request:
    request = Request("req-1", "prompt", tokens, max_tokens)
    request.set_model(model)
    return request


def test_generate_returns_when_the_answer_has_ended(engine: InferenceEngine):
    request = asked(5, 6, 7)
    request.set_top_logprobs(1)
    response = engine.generate(request)
    assert (response.get_text(), response.get_tokens()) == ("one two", (0, 1, 2, 3, 4))
    assert response.get_completion_reason() == "end_of_sequence"
    assert (response.get_input_token_count(), response.get_request_id()) == (3, "req-1")
    assert response.get_logprobs() == (0.0, 0.0)
    assert response.get_top_k_logprobs() == (((3, 0.0),), ((4, 0.0),))
    assert response.get_end_time_ns() > response.get_start_time_ns()
    assert request.is_finished()
    assert not request.is_failed()
    assert request.get_generated_tokens() == response.get_tokens()


def test_the_callback_gets_each_token_once_and_the_end(engine: InferenceEngine):
    told: list[tuple[int, bool]] = []
    request = asked()
    request.set_streaming(True)
    request.set_token_callback(lambda *each: told.append(each))
    request.set_stop_tokens([4])
    response = engine.generate(request)
    assert told == [(0, False), (1, False), (2, False), (3, False), (4, True)]
    assert response.has_stopped_by_stop_token()
    assert response.get_text() == "one "


def test_an_answer_comes_in_chunks(engine: InferenceEngine):
    request = asked()
    request.set_stop_string("two")
    chunks = [*engine.stream(request)]
    assert chunks == [
        ResponseChunk("req-1", 0, "", finished=False),
        ResponseChunk("req-1", 1, "", finished=False),
        ResponseChunk("req-1", 2, "", finished=False),
        ResponseChunk("req-1", 3, "one ", finished=False),
        ResponseChunk("req-1", 4, "", finished=False),
        ResponseChunk("req-1", NO_TOKEN, "", finished=True),
    ]


def test_the_other_reasons_of_an_end(engine: InferenceEngine):
    assert engine.generate(asked(max_tokens=2)).has_stopped_by_max_tokens()
    stopped = asked()
    stopped.set_stop_string("two")
    assert engine.generate(stopped).has_stopped_by_stop_string()
    only_prompt = asked(5, 6)
    only_prompt.set_allow_prefill_only(True)
    response = engine.generate(only_prompt)
    assert response.get_completion_reason() == "unknown"
    assert (response.get_input_token_count(), response.get_tokens()) == (2, ())


def test_a_future_has_the_response_while_others_ask_how_far_it_is(
    engine: InferenceEngine,
):
    request = asked(model="slow")
    future = engine.generate_async(request)
    eventually(lambda: request.get_generated_token_count() > 2)
    assert not request.is_finished()
    request.cancel()
    response = future.result()
    assert response.has_stopped_by_user()
    assert response.get_text().startswith("word word word ")
    assert response.get_output_token_count() >= 3
    assert (request.is_finished(), request.is_failed()) == (True, False)


def test_what_is_cancelled_before_it_is_sent_is_not_sent(engine: InferenceEngine):
    request = asked(model="slow")
    request.cancel()
    response = engine.generate(request)
    assert (response.get_completion_reason(), response.get_text()) == (
        "user_cancelled",
        "",
    )


def test_leaving_the_chunks_early_cancels_the_request(
    daemon: DaemonProcess, engine: InferenceEngine
):
    chunks = engine.stream(asked(model="slow"))
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    assert daemon.logged(msg="v2_request_abandoned", backend="slow")


def test_errors_are_in_the_response_with_what_came_before(engine: InferenceEngine):
    request = asked(model="dies")
    response = engine.generate(request)
    assert response.has_error()
    assert response.get_text() == "a"
    assert "worker" in response.get_error_message()
    assert request.is_failed()
    assert request.get_error_message() == response.get_error_message()
    assert engine.generate(asked(model="nobody")).has_error()

    def fail(*_: object) -> None:
        raise RuntimeError("of the caller")

    own = asked()
    own.set_streaming(True)
    own.set_token_callback(fail)
    assert "of the caller" in engine.generate(own).get_error_message()


def test_closing_ends_what_is_in_progress(daemon: DaemonProcess):
    with Client(daemon.directory) as client:
        engine = InferenceEngine(client)
        requests = [asked(model="slow") for _ in range(3)]
        futures = [engine.generate_async(each) for each in requests]
        engine.close()
        assert {each.result().get_completion_reason() for each in futures} == {
            "user_cancelled"
        }
        with pytest.raises(RuntimeError):
            engine.generate_async(asked())


def test_the_snippet_of_the_documentation_runs(daemon: DaemonProcess, monkeypatch):
    monkeypatch.setattr(
        "inferd.client.discovery.client_directories", lambda: [daemon.directory]
    )
    [snippet] = texts("docs/python-contract.md", "python")
    exec(compile(snippet, "snippet", "exec"), {"__name__": "snippet"})  # noqa: S102  # ours
