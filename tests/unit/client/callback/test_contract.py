"""The client that calls back, with answers of a transport of the test's own."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from inferd.client.callback import (
    Cancellation,
    ChatMessage,
    ChatRequest,
    ChatResponse,
    Config,
    HttpClient,
    HttpRequest,
    HttpResponse,
    InferenceClient,
    RequestMetrics,
    StructuredRequest,
    StructuredResponse,
    TranscriptionRequest,
)
from inferd.client.callback.client import MAX_IN_FLIGHT
from inferd.client.callback.result_queue import RESULTS, ResultQueue
from tests.cases import each_case

PATIENCE_S = 30.0
TOKEN = "secret"
URL = "http://127.0.0.1:9"
SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
HI = ChatRequest([ChatMessage("user", "hi")])
WANTED = StructuredRequest([ChatMessage("user", "n?")], "count", SCHEMA)


def said(*texts: str, end: bool = True) -> bytes:
    events = [{"choices": [{"delta": {"content": text}}]} for text in texts]
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join([*lines, "data: [DONE]\n\n" if end else ""]).encode()


def whole(text: str, reason: str = "stop") -> bytes:
    choice = {"message": {"content": text}, "finish_reason": reason}
    usage = {"completion_tokens": 4, "total_tokens": 9}
    return json.dumps({"choices": [choice], "usage": usage}).encode()


class Script:
    """A transport that answers with what the test says."""

    def __init__(
        self, *chunks: bytes, status: int = 200, error: Exception | None = None
    ) -> None:
        self.asked: list[HttpRequest] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._chunks, self._status, self._error = chunks, status, error

    def send(self, request: HttpRequest, should_cancel: Cancellation) -> HttpResponse:
        body = bytearray()
        response = self.send_streaming(request, body.extend, should_cancel)
        return HttpResponse(status=response.status, body=bytes(body) or response.body)

    def send_streaming(
        self,
        request: HttpRequest,
        on_chunk: Callable[[bytes], None],
        should_cancel: Cancellation,
    ) -> HttpResponse:
        self.asked.append(request)
        if self._status == 200:
            for chunk in self._chunks:
                on_chunk(chunk)
        with should_cancel.watched(self.may_answer.set):
            assert self.may_answer.wait(PATIENCE_S)
        if self._error is not None:
            raise self._error
        failed = b"".join(self._chunks) if self._status != 200 else b""
        return HttpResponse(status=self._status, body=failed)


def until(client: InferenceClient, handle: int) -> None:
    """Poll until a request has ended."""
    while client.is_in_flight(handle):
        client.poll()
        threading.Event().wait(0.0005)


def chat(http: HttpClient, **options: Any) -> tuple[list[str], ChatResponse]:
    tokens: list[str] = []
    ends: list[ChatResponse] = []
    with InferenceClient(url=URL, http_client=http, **options) as client:
        until(client, client.chat(HI, tokens.append, ends.append))
        client.poll()
    [end] = ends
    return tokens, end


def complete(
    http: HttpClient, request: StructuredRequest = WANTED
) -> StructuredResponse:
    ends: list[StructuredResponse] = []
    with InferenceClient(url=URL, http_client=http) as client:
        until(client, client.complete(request, ends.append))
        [end] = ends
        assert client.poll() == 0
    return end


# --- calls and modes ----------------------------------------------------------------------


def test_a_call_returns_at_once_and_only_poll_calls_back():
    http = Script(said("Hi", " there"))
    http.may_answer.clear()
    called: list[object] = []
    with InferenceClient(url=URL, http_client=http) as client:
        handle = client.chat(HI, called.append, called.append)
        assert handle == 1
        assert client.is_in_flight(handle)
        http.may_answer.set()
        for thread in [*threading.enumerate()]:
            if thread.name == f"inferd-{handle}":
                thread.join(PATIENCE_S)
        assert called == []
        assert client.poll() == 3
        assert called == ["Hi", " there", ChatResponse(full_response="Hi there")]
        assert not client.is_in_flight(handle)
        assert client.poll() == 0


def test_a_thread_of_the_clients_calls_back_where_it_is_asked_to():
    ended = threading.Event()
    called: list[object] = []

    def end(response: ChatResponse) -> None:
        called.append(response.full_response)
        ended.set()

    http = Script(said("a", "b"))
    with InferenceClient(url=URL, http_client=http, calls_back=True) as client:
        client.chat(HI, called.append, end)
        assert ended.wait(PATIENCE_S)
    assert called == ["a", "b", "ab"]


def test_a_structured_answer_comes_whole_and_as_a_result():
    ends: list[StructuredResponse] = []
    http = Script(whole('{"n":3}'))

    def note_of(_: int, found: object) -> object:
        return found["n"] if isinstance(found, dict) else None

    with InferenceClient(url=URL, http_client=http, read_result=note_of) as client:
        until(client, client.complete(WANTED, ends.append))
        assert ends == [StructuredResponse(raw_json='{"n":3}')]
        assert client.read_result() == 3
        assert client.read_result() is None
    fields = json.loads(http.asked[0].body)
    assert fields["stream"] is False
    assert fields["temperature"] == 0
    assert fields["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "count", "schema": json.loads(SCHEMA)},
    }


def test_speech_goes_as_a_form_to_its_own_address_and_into_a_chat():
    texts: list[str] = []
    http = Script(b'{"text":" hello\\n"}')
    with InferenceClient(url=f"{URL}/v1/", http_client=http) as client:
        audio = TranscriptionRequest(b"RIFF", "wav")
        until(client, client.transcribe(audio, lambda end: texts.append(end.text)))
    [asked] = http.asked
    assert asked.url == f"{URL}/inference"
    kind = dict(asked.headers)["content-type"]
    assert kind.startswith("multipart/form-data; boundary=")
    assert b'filename="audio.wav"\r\n\r\nRIFF\r\n' in asked.body
    assert texts == ["hello"]
    tokens, _ = chat(Script(said(texts[0])))
    assert tokens == ["hello"]


# --- the bytes ----------------------------------------------------------------------------


def sent(config: Config, request: ChatRequest = HI, **place: Any) -> bytes:
    http = Script(said("x"))
    with InferenceClient(http_client=http, config=config, **place) as client:
        until(client, client.chat(request, lambda _: None, lambda _: None))
    return http.asked[0].body


@each_case("place", [{"url": URL}, {}], ids=str)
def test_the_same_request_and_configuration_are_the_same_bytes(place):
    config = Config(model="m", temperature=0.0, seed=7)
    body = sent(config, **place)
    assert body == sent(config, **place)
    assert b'"temperature":0,' in body
    assert b'"seed":7' in body
    assert b"seed" not in sent(Config(), **place)
    assert b'"temperature":0.7' in sent(Config(), **place)
    fields = json.loads(body)
    assert (fields["model"], fields["max_tokens"], fields["stream"]) == ("m", 512, True)


def test_the_address_and_the_headers():
    http = Script(said("x"))
    chat(http, config=Config(token=TOKEN, timeout_s=3.0))
    [asked] = http.asked
    assert asked.url == f"{URL}/v1/chat/completions"
    assert ("authorization", f"Bearer {TOKEN}") in asked.headers
    assert asked.timeout_s == 3.0
    assert TOKEN not in repr(Config(token=TOKEN))


def test_configure_is_for_the_requests_after_it():
    http = Script(said("x"))
    with InferenceClient(url=URL, http_client=http) as client:
        until(client, client.chat(HI, lambda _: None, lambda _: None))
        client.configure(Config(model="other"))
        until(client, client.chat(HI, lambda _: None, lambda _: None))
    assert [json.loads(each.body).get("model") for each in http.asked] == [
        None,
        "other",
    ]
    for wrong in ({"timeout_s": 0.0}, {"request_timeout_s": -1.0}):
        with pytest.raises(ValueError, match="above 0"):
            Config(**wrong)  # type: ignore[arg-type]


# --- failures -----------------------------------------------------------------------------


@each_case(
    ("http", "words", "text"),
    [
        (Script(error=ConnectionRefusedError()), "Connection refused", ""),
        (Script(error=TimeoutError()), "Request timed out", ""),
        (
            Script(said("a", end=False), error=TimeoutError()),
            "Request timed out",
            "a",
        ),
        (Script(b"<html>"), "Failed to parse response", ""),
        (
            Script(said("a", end=False), b"data: {]\n\n"),
            "Failed to parse response",
            "a",
        ),
        (Script(said("a", end=False)), "Stream interrupted", "a"),
        (
            Script(said("a", end=False), error=ConnectionResetError()),
            "Stream interrupted",
            "a",
        ),
        (Script(b'{"error":{"message":"no","code":"c"}}', status=400), "no", ""),
        (Script(b"x", status=502), "HTTP 502", ""),
        (Script(said("a", end=False), b'data: {"error":"gone"}\n\n'), "gone", "a"),
        (Script(error=RuntimeError("bug")), "RuntimeError: bug", ""),
    ],
)
def test_each_failure_is_told_by_the_callback_with_what_came_before(http, words, text):
    tokens, end = chat(http)
    assert (end.error, end.error_message, end.full_response) == (True, words, text)
    assert "".join(tokens) == text
    assert not end.cancelled


@each_case(
    ("answer", "words"),
    [
        (whole('{"n":"three"}'), "Response did not match schema"),
        (whole('{"n":', "length"), "Response did not match schema"),
        (whole("three"), "Failed to parse response"),
        (b"{}", "Failed to parse response"),
        (b"", "Failed to parse response"),
    ],
)
def test_a_structure_that_is_none_is_told(answer, words):
    end = complete(Script(answer))
    assert (end.error, end.error_message) == (True, words)


def test_what_cannot_be_written_is_told_by_the_callback():
    end = complete(Script(), replace(WANTED, json_schema="{"))
    assert end.error_message.startswith("The schema is no JSON")
    http = Script()
    tokens, told = chat(http, config=Config(token=f"{TOKEN} {TOKEN}"))
    assert (told.error, tokens, http.asked) == (True, [], [])
    ends: list[Any] = []
    with InferenceClient(url=URL, http_client=http) as client:
        audio = TranscriptionRequest(b"", '"')
        until(client, client.transcribe(audio, ends.append))
        surrogate = ChatRequest([ChatMessage("user", "\ud800")])
        until(client, client.chat(surrogate, ends.append, ends.append))
    assert [each.error for each in ends] == [True, True]


@pytest.fixture
def waiting() -> Iterator[Script]:
    http = Script(said("a", end=False))
    http.may_answer.clear()
    yield http
    http.may_answer.set()


def test_a_cancelled_request_keeps_what_came(waiting: Script):
    ends: list[Any] = []
    tokens: list[str] = []
    with InferenceClient(url=URL, http_client=waiting) as client:
        handle = client.chat(HI, tokens.append, ends.append)
        while not tokens:
            client.poll()
        client.cancel(handle)
        until(client, handle)
        client.cancel(handle)
        assert ends == [ChatResponse(full_response="a", cancelled=True)]
        waiting.may_answer.clear()
        audio = client.transcribe(TranscriptionRequest(b"RIFF"), ends.append)
        client.cancel(audio)
        until(client, audio)
        assert ends[1].error_message == "Request cancelled"


def test_a_client_that_is_closed_calls_nothing(waiting: Script):
    called: list[object] = []
    client = InferenceClient(url=URL, http_client=waiting)
    handle = client.chat(HI, called.append, called.append)
    client.close()
    assert client.poll() == 0
    assert not client.is_in_flight(handle)
    assert not client.is_in_flight(client.chat(HI, called.append, called.append))
    assert client.poll() == 0
    assert called == []
    with pytest.raises(ValueError, match="not both"):
        InferenceClient("/x", url=URL)


def test_requests_in_flight_are_bounded(waiting: Script):
    ends: list[ChatResponse] = []
    with InferenceClient(url=URL, http_client=waiting) as client:
        for _ in range(MAX_IN_FLIGHT):
            client.chat(HI, lambda _: None, ends.append)
        until(client, client.chat(HI, lambda _: None, ends.append))
    assert [each.error_message for each in ends] == ["Too many requests in flight"]


def test_what_a_callback_raises_leaves_poll_and_the_rest_is_due():
    ends: list[ChatResponse] = []

    def fail(_: str) -> None:
        raise KeyError("mine")

    with InferenceClient(url=URL, http_client=Script(said("a"))) as client:
        handle = client.chat(HI, fail, ends.append)
        with pytest.raises(KeyError):
            until(client, handle)
        until(client, handle)
    assert ends[0].full_response == "a"


# --- metrics and results ------------------------------------------------------------------


def test_metrics_are_of_the_last_request_and_zero_before_it_ends(waiting: Script):
    with InferenceClient(url=URL, http_client=Script(said("a", "b"))) as client:
        assert client.last_request_metrics() == RequestMetrics()
        assert client.token_usage().total_tokens == 0
        until(client, client.chat(HI, lambda _: None, lambda _: None))
        found = client.last_request_metrics()
        assert found.tokens_generated == 2
        assert 0 < found.time_to_first_token_ms <= found.latency_ms
        speed = found.tokens_generated / (found.latency_ms / 1000)
        assert found.tokens_per_second == pytest.approx(speed)
        assert client.token_usage().total_tokens == 2
        client._http = waiting
        handle = client.chat(HI, lambda _: None, lambda _: None)
        assert client.last_request_metrics() == RequestMetrics()
        waiting.may_answer.set()
        until(client, handle)
        failed = client.last_request_metrics()
        assert (failed.tokens_generated, failed.tokens_per_second) == (1, 0.0)
        client._http = Script(whole('{"n":1}'))
        until(client, client.complete(WANTED, lambda _: None))
        found = client.last_request_metrics()
        assert (found.tokens_generated, found.time_to_first_token_ms) == (4, 0.0)
        assert client.token_usage().total_tokens == 2 + 1 + 9


def test_results_are_read_without_a_lock_or_memory():
    queue = ResultQueue()
    for number in range(RESULTS + 2):
        assert queue.put(number) == (number < RESULTS)
    assert queue.n_dropped == 2
    read = queue.read
    counts = [0, 0, 0]
    with queue._putting:  # a writer that is interrupted in its midst
        counts[0] = sys.getallocatedblocks()
        counts[1] = sys.getallocatedblocks()
        first, second = read(), read()
        counts[2] = sys.getallocatedblocks()
    assert (first, second) == (0, 1)
    assert counts[2] - counts[1] == counts[1] - counts[0]  # the count itself is one
    assert [read() for _ in range(RESULTS)] == [*range(2, RESULTS), None, None]
    assert queue.put("again")
    assert read() == "again"
