"""What the SDK makes of an answer: its transport is replaced, and nothing else."""

import json
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import (
    Message,
    MessageTokensCount,
    ModelInfo,
    RawMessageStreamEvent,
)
from hypothesis import given, settings, strategies as st
from pydantic import TypeAdapter

from inferd.bridge.anthropic.api import ANTHROPIC, MessageStream
from inferd.bridge.anthropic.request import ask_count, ask_message
from inferd.bridge.translation.api import OfferedModel
from inferd.bridge.translation.failures import STATUS, BridgeError, Reason
from inferd.bridge.translation.question import Question
from inferd.wire.responses import (
    ProgressFrame,
    TextDelta,
    ThinkingDelta,
    ToolCall,
)
from tests.cases import each_case
from tests.fakes.bridge_answers import ASKED, BLOCK, done, frame, streamed, whole

HI: Any = [{"role": "user", "content": "hi"}]
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
SENT = {"model": "small", "max_tokens": 9, "messages": HI}


def ask(**fields: Any) -> Question:
    return ask_message(json.dumps({**SENT, **fields}).encode(), ASKED)


CALL = frame(ToolCall("tc-0", "weather", {"city": "Köln"}))
ANSWER: list[Any] = [
    frame(ThinkingDelta("h")),
    frame(ThinkingDelta("m")),
    frame(TextDelta("Let me ")),
    frame(TextDelta("see.")),
    CALL,
    frame(ToolCall("tc-1", "weather", {})),
    done("tool_use"),
]
CONTENT: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "hm", "signature": "unsigned"},
    {"type": "text", "text": "Let me see.", "citations": None},
    {
        "type": "tool_use",
        "id": "toolu_1_2",
        "name": "weather",
        "input": {"city": "Köln"},
        "caller": {"type": "direct"},
    },
    {
        "type": "tool_use",
        "id": "toolu_1_3",
        "name": "weather",
        "input": {},
        "caller": {"type": "direct"},
    },
]
REQUIRED = {
    *("id", "type", "role", "content", "model", "stop_reason", "stop_sequence"),
    *("stop_details", "usage", "container"),
}
"""What the API's description requires of a message; the SDK's types require less."""


def events(data: bytes) -> list[Any]:
    """Give the events, each of which has its name twice and is one of the SDK's."""
    found = []
    for each in data.split(b"\n\n")[:-1]:
        head, _, line = each.partition(b"\ndata: ")
        fields = json.loads(line)
        assert head == b"event: " + fields["type"].encode()
        EVENT.validate_python(fields)
        found.append(fields)
    return found


def client(status: int, body: bytes, kind: str = "application/json") -> Any:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, content=body, headers={"content-type": kind})

    return anthropic.Anthropic(
        api_key="k",
        base_url="http://bridge",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(answer)),
    )


def read(data: bytes) -> Message:
    """Have the SDK put the events of a stream together."""
    with (
        client(200, data, MessageStream.content_type) as sdk,
        sdk.messages.stream(**SENT) as stream,
    ):
        message: Message = stream.get_final_message()
    return message


def plain(message: Message) -> Any:
    return message.model_dump(mode="json", exclude_unset=True)["content"]


# --- messages -----------------------------------------------------------------------


def test_an_answer_is_the_same_message_streamed_or_not():
    body = whole(ask(), *ANSWER)
    message = Message.model_validate(body)
    assert body["content"] == CONTENT
    assert body.keys() == REQUIRED
    assert {name: n for name, n in body["usage"].items() if n is not None} == {
        "input_tokens": 8,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 3,
        "output_tokens": 5,
    }
    data = b'event: ping\ndata: {"type":"ping"}\n\n' + streamed(ask(), *ANSWER)
    put_together = read(data)
    assert plain(put_together) == CONTENT
    assert put_together.usage.cache_read_input_tokens == 3
    for name in ("id", "model", "role", "stop_reason", "stop_sequence"):
        assert getattr(put_together, name) == getattr(message, name)
    assert message.stop_reason == "tool_use"


def test_a_stream_begins_with_the_tokens_of_its_prompt():
    progress = ProgressFrame(id="req_1", status="prefill", processed=3, total=11)
    queued = ProgressFrame(id="req_1", status="queued", position=2)
    first, *_, last, _ = events(streamed(ask(), queued, progress, *ANSWER))
    assert first["message"]["usage"]["input_tokens"] == 11
    assert last["usage"]["input_tokens"] == 8


def test_events_come_in_the_order_of_the_api():
    found = events(streamed(ask(), *ANSWER))
    kinds = [
        (each["type"], each.get("index"), each.get("delta", {}).get("type"))
        for each in found
    ]
    start, delta, stop = (
        f"content_block_{name}" for name in ("start", "delta", "stop")
    )
    assert kinds == [
        ("message_start", None, None),
        (start, 0, None),
        (delta, 0, "thinking_delta"),
        (delta, 0, "thinking_delta"),
        (delta, 0, "signature_delta"),
        (stop, 0, None),
        (start, 1, None),
        (delta, 1, "text_delta"),
        (delta, 1, "text_delta"),
        (stop, 1, None),
        (start, 2, None),
        (delta, 2, "input_json_delta"),
        (stop, 2, None),
        (start, 3, None),
        (delta, 3, "input_json_delta"),
        (stop, 3, None),
        ("message_delta", None, None),
        ("message_stop", None, None),
    ]


@settings(max_examples=30)
@given(st.lists(BLOCK, max_size=5))
def test_any_answer_is_the_same_streamed_or_not(blocks):
    frames = [*map(frame, blocks), done()]
    started: dict[int, Any] = {}
    found = events(streamed(ask(), *frames))
    for each in found:
        match each:
            case {
                "type": "content_block_start",
                "index": index,
                "content_block": block,
            }:
                assert index == len(started)
                started[index] = {**block, "input": ""} if "input" in block else block
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                assert index == len(started) - 1
                (name, value) = [*delta.items()][1]
                name = "input" if name == "partial_json" else name
                started[index] |= {name: started[index][name] + value}
            case _:
                pass
    for block in started.values():
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["input"])
    assert [*started.values()] == whole(ask(), *frames)["content"]


def test_reasoning_that_is_not_to_be_shown_is_left_out():
    question = ask(thinking={"type": "enabled", "display": "omitted"})
    data = streamed(question, *ANSWER)
    assert b"hm" not in data
    assert plain(read(data)) == [{**CONTENT[0], "thinking": ""}, *CONTENT[1:]]


def test_an_answer_that_is_cut_costs_what_has_come():
    question = ask()
    for each in ANSWER[:3]:
        list(question.answer.add(each))
    assert question.answer.n_tokens == 3
    list(question.answer.add(done()))
    assert question.answer.n_tokens == 16


def test_one_call_is_enough_where_calls_are_not_parallel():
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    tool = {"name": "weather", "input_schema": {"type": "object"}}
    question = ask(tools=[tool], tool_choice=choice)
    assert list(question.answer.add(CALL))
    assert question.answer.has_enough
    body = whole(question, CALL, frame(TextDelta("more")), done("cancelled"))
    assert len(body["content"]) == 1
    assert body["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (done("end_turn"), ("end_turn", None)),
        (done("max_tokens"), ("max_tokens", None)),
        (done("stop_sequence", stop_sequence="##"), ("stop_sequence", "##")),
    ],
)
def test_the_end_of_an_answer_has_its_reason(end, expected):
    body = whole(ask(), frame(TextDelta("a")), end)
    assert (body["stop_reason"], body["stop_sequence"]) == expected
    message = read(streamed(ask(), frame(TextDelta("a")), end))
    assert (message.stop_reason, message.stop_sequence) == expected


def test_a_prompt_that_was_computed_alone_is_an_empty_message():
    message = read(streamed(ask(max_tokens=0), done("end_turn")))
    assert (message.content, message.stop_reason) == ([], "max_tokens")


@pytest.mark.parametrize(
    ("detail", "reason"),
    [({}, Reason.CANCELLED), ({"detail": "deadline"}, Reason.DEADLINE)],
)
def test_an_answer_that_others_cut_is_a_failure(detail, reason):
    with pytest.raises(BridgeError) as caught:
        whole(ask(), frame(TextDelta("a")), done("cancelled", **detail))
    assert caught.value.reason is reason


def test_tokens_are_counted():
    question = ask_count(json.dumps({"messages": HI}).encode(), ASKED)
    body = whole(question, done("max_tokens"))
    assert MessageTokensCount.model_validate(body).input_tokens == 11
    assert question.answer.n_tokens == 0


# --- failures, models ---------------------------------------------------------------

EXCEPTIONS = {
    Reason.INVALID_REQUEST: anthropic.BadRequestError,
    Reason.CONTEXT_OVERFLOW: anthropic.BadRequestError,
    Reason.UNAUTHENTICATED: anthropic.AuthenticationError,
    Reason.FORBIDDEN: anthropic.PermissionDeniedError,
    Reason.MODEL_NOT_FOUND: anthropic.NotFoundError,
    Reason.TOO_LARGE: anthropic.RequestTooLargeError,
    Reason.QUEUE_FULL: anthropic.RateLimitError,
    Reason.INTERNAL: anthropic.InternalServerError,
    Reason.UNAVAILABLE: anthropic.ServiceUnavailableError,
    Reason.DEADLINE: anthropic.GatewayTimeoutError,
}
TYPES = {
    Reason.INVALID_REQUEST: "invalid_request_error",
    Reason.UNAUTHENTICATED: "authentication_error",
    Reason.FORBIDDEN: "permission_error",
    Reason.MODEL_NOT_FOUND: "not_found_error",
    Reason.TOO_LARGE: "request_too_large",
    Reason.QUEUE_FULL: "rate_limit_error",
    Reason.INTERNAL: "api_error",
    Reason.UNAVAILABLE: "overloaded_error",
    Reason.CANCELLED: "api_error",
    Reason.DEADLINE: "timeout_error",
}


@each_case("reason", EXCEPTIONS)
def test_a_failure_is_the_exception_that_the_sdk_has_for_it(reason):
    body = ANTHROPIC.error_body(BridgeError(reason, "so it is"))
    with client(STATUS[reason], body) as sdk, pytest.raises(EXCEPTIONS[reason]):
        sdk.messages.create(**SENT)


@each_case("reason", TYPES)
def test_a_failure_in_a_stream_is_an_event_with_its_type(reason):
    begun = b"".join(ask().answer.add(frame(TextDelta("a"))))
    failure = MessageStream().failure_event(BridgeError(reason, "so it is"))
    with pytest.raises(anthropic.APIStatusError) as caught:
        read(begun + failure)
    assert caught.value.body == {
        "type": "error",
        "error": {"type": TYPES[reason], "message": "so it is"},
    }


def test_models_are_listed_as_the_sdk_reads_them():
    models = [OfferedModel("small", ("generate",)), OfferedModel("e", ("embed",))]
    assert ANTHROPIC.model_list is not None
    assert ANTHROPIC.model_entry is not None
    with client(200, ANTHROPIC.model_list(models, 7)) as sdk:
        assert [model.id for model in sdk.models.list()] == ["small", "e"]
    entry = ModelInfo.model_validate_json(ANTHROPIC.model_entry(models[0], 7))
    assert (entry.id, entry.created_at.timestamp()) == ("small", 7)
