"""Responses, and what the SDK makes of them: its transport alone is replaced."""

import json
from functools import partial
from typing import Any

import httpx2
import msgspec
import openai
import pytest
from hypothesis import given, settings, strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from inferd.bridge.openai.responses.request import SKIPPED_TOOLS, ask_response
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import Question
from inferd.bridge.translation.sse import CONTENT_TYPE
from inferd.wire.blocks import (
    AudioBlock,
    BlocksRequest,
    ImageBlock,
    NamedTool,
    ToolResultBlock,
)
from inferd.wire.responses import (
    Alternative,
    Logprob,
    TextDelta,
    ThinkingDelta,
    ToolCall,
)
from tests.cases import each_case
from tests.fakes.bridge_answers import (
    ASKED,
    BLOCK,
    done,
    frame,
    generated,
    refused,
    streamed,
    whole,
)

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}
TIME = {**TOOL, "name": "time", "async": False}
NAMED = {"type": "function", "name": "weather"}


def ask(**fields: Any) -> Question:
    sent = {"model": "small", "input": "hi", **fields}
    return ask_response(json.dumps(sent).encode(), ASKED)


def request(**fields: Any) -> BlocksRequest:
    return generated(ask(**fields))


def refusal(**fields: Any) -> tuple[Reason, str | None]:
    return refused(partial(ask, **fields))


def events(data: bytes) -> list[Any]:
    """Give the events: each has its name twice and its number, and is one of the SDK's."""
    found: list[Any] = []
    for each in data.split(b"\n\n")[:-1]:
        head, _, line = each.partition(b"\ndata: ")
        fields = json.loads(line)
        assert head == b"event: " + fields["type"].encode()
        assert fields["sequence_number"] == len(found)
        EVENT.validate_python(fields)
        found.append(fields)
    return found


def client(body: bytes, kind: str) -> openai.OpenAI:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=body, headers={"content-type": kind})

    return openai.OpenAI(
        api_key="k",
        base_url="http://bridge",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(answer)),
    )


def read(data: bytes) -> Response:
    """Have the SDK put the events of a stream together."""
    with (
        client(data, CONTENT_TYPE) as sdk,
        sdk.responses.stream(model="small", input="hi") as stream,
    ):
        return stream.get_final_response()


CALL = frame(ToolCall("tc-0", "weather", {"city": "Köln"}))
ANSWER: list[Any] = [
    frame(ThinkingDelta("h")),
    frame(ThinkingDelta("m")),
    frame(TextDelta("Let me ")),
    frame(TextDelta("see.")),
    CALL,
    done("tool_use"),
]

# --- requests -----------------------------------------------------------------------


def test_a_turn_of_a_coding_agent_becomes_a_conversation():
    called = {"type": "function_call", "name": "weather", "arguments": '{"a":\n1}'}
    result = {"type": "function_call_output", "output": "12 °C"}
    found = request(
        instructions="You are an agent.",
        input=[
            {"role": "developer", "content": [{"type": "input_text", "text": "brief"}]},
            {"type": "message", "role": "user", "content": "weather?"},
            {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"},
            {
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "id": "msg_1",
                "content": [
                    {"type": "output_text", "text": "I look.", "annotations": []}
                ],
            },
            {**called, "call_id": "c1"},
            {"type": "reasoning", "id": "rs", "summary": []},
            {**called, "call_id": "c2", "arguments": ""},
            {**result, "call_id": "c1"},
            {
                **result,
                "call_id": "c2",
                "output": [{"type": "input_text", "text": "9"}],
            },
            {"role": "user", "content": "and?"},
        ],
        store=False,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="k",
        client_metadata={"a": "b"},
        max_output_tokens=9,
        temperature=0,
        top_p=0.5,
        stream=True,
        keep_alive=5,
    )
    line = msgspec.json.encode(found.messages)
    assert b"\n" not in line

    def text(value: str) -> dict[str, str]:
        return {"type": "text", "text": value}

    call = {"type": "tool_use", "name": "weather"}
    results = {"type": "tool_result"}
    assert json.loads(line) == [
        {"role": "system", "content": [text("You are an agent.")]},
        {"role": "system", "content": [text("brief")]},
        {"role": "user", "content": [text("weather?")]},
        {
            "role": "assistant",
            "content": [
                text("I look."),
                {**call, "tool_call_id": "c1", "input": {"a": 1}},
                {**call, "tool_call_id": "c2", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {**results, "tool_call_id": "c1", "content": [text("12 °C")]},
                {**results, "tool_call_id": "c2", "content": [text("9")]},
            ],
        },
        {"role": "user", "content": [text("and?")]},
    ]
    assert found == BlocksRequest(
        id="req_1",
        model="small",
        messages=found.messages,
        max_tokens=9,
        temperature=0,
        top_p=0.5,
        stream=True,
        keep_alive_s=5,
    )


@each_case(
    ("choice", "expected", "offered"),
    [
        (None, None, ["weather", "time"]),
        ("none", "none", ["weather", "time"]),
        ("required", "required", ["weather", "time"]),
        (NAMED, NamedTool("weather"), ["weather", "time"]),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [NAMED]},
            "required",
            ["weather"],
        ),
    ],
)
def test_tools_and_their_choice_are_passed_on(choice, expected, offered):
    found = request(tools=[TOOL, TIME], tool_choice=choice)
    assert found.tool_choice == expected
    assert [tool.name for tool in found.tools] == offered
    assert json.loads(bytes(found.tools[0].input_schema)) == SCHEMA
    echoed = whole(ask(tools=[TOOL, TIME], tool_choice=choice), done())
    assert echoed["tool_choice"] == (choice or "auto")
    Response.model_validate(echoed)


def test_tools_of_other_types_are_skipped_and_named():
    others = [{"type": "web_search"}, {"type": "custom", "name": "apply_patch"}]
    question = ask(tools=[TOOL, *others], metadata={"a": "b"})
    assert isinstance(question.request, BlocksRequest)
    assert [tool.name for tool in question.request.tools] == ["weather"]
    body = whole(question, done())
    assert body["metadata"] == {
        "a": "b",
        SKIPPED_TOOLS: "tools[1] web_search, tools[2] custom",
    }
    assert body["tools"] == [TOOL]


@each_case(
    ("fields", "is_enforced"),
    [
        ({}, False),
        ({"tool_choice": {"type": "allowed_tools", "tools": [NAMED]}}, False),
        ({"tool_choice": "required"}, True),
        ({"tool_choice": NAMED}, True),
        ({"text": {"format": {"type": "json_object"}}}, True),
    ],
)
def test_tools_are_strict_in_the_response_only_if_that_is_enforced(fields, is_enforced):
    question = ask(tools=[TIME, {**TOOL, "strict": True}], **fields)
    assert question.unenforced == ("" if is_enforced else "tools[1].strict")
    shown = whole(question, done())["tools"]
    assert [tool.get("strict", False) for tool in shown] == [False, is_enforced]


def test_a_schema_of_the_text_is_enforced():
    form = {"type": "json_schema", "name": "city", "schema": SCHEMA, "strict": True}
    found = request(text={"format": form, "verbosity": "medium"}).response_format
    assert found is not None
    assert json.loads(msgspec.json.encode(found.schema)) == SCHEMA
    echoed = whole(ask(text={"format": form}), done())
    assert echoed["text"] == {"format": form}
    Response.model_validate(echoed)


@pytest.mark.parametrize(
    ("effort", "expected"), [(None, None), ("minimal", False), ("high", True)]
)
def test_reasoning_is_asked_for_by_its_effort(effort, expected):
    reasoning = {"effort": effort, "summary": "auto", "mode": "standard"}
    assert request(reasoning=reasoning).thinking is expected


def test_pictures_and_recordings_are_attached_in_messages_and_in_results():
    shown = {
        "type": "input_image",
        "image_url": "data:image/png;base64,AQ==",
        "detail": "high",
    }
    heard = {"type": "input_audio", "input_audio": {"data": "Ag==", "format": "mp3"}}
    result = {"type": "function_call_output", "call_id": "c", "output": [shown]}
    asked = ask(input=[{"role": "user", "content": [shown, heard]}, result])
    first, second = generated(asked).conversation
    assert first.content == [ImageBlock("1"), AudioBlock("2")]
    assert second.content == [ToolResultBlock("c", [ImageBlock("3")])]
    assert [(each.kind, each.place) for each in asked.media] == [
        ("picture", "input[0].content[0].image_url"),
        ("sound", "input[0].content[1].input_audio.data"),
        ("picture", "input[1].output[0].image_url"),
    ]


@each_case(
    ("fields", "reason", "param"),
    [
        ({"colour": 1}, Reason.UNKNOWN_FIELD, "colour"),
        ({"input": []}, Reason.INVALID_REQUEST, "input"),
        ({"input": [{"type": "reasoning"}]}, Reason.INVALID_REQUEST, "input"),
        (
            {"input": [{"type": "item_reference", "id": "m"}]},
            Reason.INVALID_REQUEST,
            "input[0].type",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            Reason.UNSUPPORTED,
            "input[0].content[0].image_url",
        ),
        (
            {
                "input": [
                    {
                        "role": "user",
                        "content": [{"type": "input_image", "file_id": "f"}],
                    }
                ]
            },
            Reason.UNSUPPORTED,
            "input[0].content[0].file_id",
        ),
        (
            {
                "input": [
                    {
                        "role": "user",
                        "content": [{"type": "input_file", "file_id": "f"}],
                    }
                ]
            },
            Reason.UNSUPPORTED,
            "input[0].content[0]",
        ),
        (
            {
                "input": [
                    {
                        "type": "function_call",
                        "call_id": "c",
                        "name": "n",
                        "arguments": "{",
                    }
                ]
            },
            Reason.INVALID_REQUEST,
            "input[0].arguments",
        ),
        ({"max_output_tokens": 0}, Reason.INVALID_REQUEST, "max_output_tokens"),
        ({"stream_options": {}}, Reason.INVALID_REQUEST, "stream_options"),
        (
            {"include": ["message.output_text.logprob"]},
            Reason.INVALID_REQUEST,
            "include[0]",
        ),
        ({"previous_response_id": "r"}, Reason.UNSUPPORTED, "previous_response_id"),
        ({"background": True}, Reason.UNSUPPORTED, "background"),
        ({"truncation": "auto"}, Reason.UNSUPPORTED, "truncation"),
        ({"tool_choice": "required"}, Reason.INVALID_REQUEST, "tool_choice"),
        (
            {
                "tools": [TOOL, {"type": "web_search"}],
                "tool_choice": {"type": "web_search"},
            },
            Reason.UNSUPPORTED,
            "tool_choice",
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "name": "time"}},
            Reason.UNSUPPORTED,
            "tool_choice",
        ),
        (
            {"tools": [{"type": "function"}]},
            Reason.INVALID_REQUEST,
            "tools[0].name",
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n"}}},
            Reason.INVALID_REQUEST,
            "text.format.schema",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_its_place(fields, reason, param):
    assert refusal(**fields) == (reason, param)


# --- answers ------------------------------------------------------------------------


def test_events_come_in_the_order_of_the_api():
    found = events(streamed(ask(), *ANSWER))
    kinds = [
        (each["type"].removeprefix("response."), each.get("output_index"))
        for each in found
    ]
    text = "output_text"
    call = "function_call_arguments"
    assert kinds == [
        ("created", None),
        ("in_progress", None),
        ("output_item.added", 0),
        ("content_part.added", 0),
        ("reasoning_text.delta", 0),
        ("reasoning_text.delta", 0),
        ("reasoning_text.done", 0),
        ("content_part.done", 0),
        ("output_item.done", 0),
        ("output_item.added", 1),
        ("content_part.added", 1),
        (f"{text}.delta", 1),
        (f"{text}.delta", 1),
        (f"{text}.done", 1),
        ("content_part.done", 1),
        ("output_item.done", 1),
        ("output_item.added", 2),
        (f"{call}.delta", 2),
        (f"{call}.done", 2),
        ("output_item.done", 2),
        ("completed", None),
    ]


def test_an_answer_is_the_same_response_streamed_or_not():
    body = whole(ask(), *ANSWER)
    data = streamed(ask(), *ANSWER)
    assert events(data)[-1]["response"] == body
    response = read(data)
    assert response.output_text == "Let me see."
    assert response.status == "completed"
    assert response.usage is not None
    assert response.usage.input_tokens_details.cached_tokens == 3
    reasoning, message, call = body["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert message["content"][0]["text"] == "Let me see."
    assert call == {
        "id": "fc_1_2",
        "type": "function_call",
        "call_id": "call_1_2",
        "name": "weather",
        "arguments": '{"city":"Köln"}',
        "status": "completed",
    }
    Response.model_validate(body)


@settings(max_examples=30)
@given(st.lists(BLOCK, max_size=5))
def test_deltas_and_items_of_any_answer_are_those_of_the_response(blocks):
    found = events(streamed(ask(), *map(frame, blocks), done()))
    output = found[-1]["response"]["output"]
    items = [each["item"] for each in found if each["type"].endswith("item.done")]
    assert items == output
    for index, item in enumerate(output):
        delta = "".join(
            each["delta"]
            for each in found
            if "delta" in each and each["output_index"] == index
        )
        if item["type"] == "function_call":
            assert item["arguments"] == delta
        else:
            assert item["content"][0]["text"] == delta


def test_an_answer_that_is_cut_is_incomplete():
    data = streamed(ask(), frame(TextDelta("a")), done("max_tokens"))
    last = events(data)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["output"][0]["status"] == "incomplete"
    with client(data, CONTENT_TYPE) as sdk:
        kinds = [
            each.type
            for each in sdk.responses.create(model="m", input="hi", stream=True)
        ]
    assert kinds[-1] == "response.incomplete"


def test_a_stream_that_fails_before_its_first_event_is_begun_all_the_same():
    question = ask(stream=True)
    assert question.failure_event is not None
    found = events(question.failure_event(BridgeError(Reason.DEADLINE, "too late")))
    assert [each["type"] for each in found] == [
        "response.created",
        "response.in_progress",
        "response.failed",
    ]
    assert [each["response"]["status"] for each in found] == [
        "in_progress",
        "in_progress",
        "failed",
    ]
    assert not any("usage" in each["response"] for each in found)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.UNAVAILABLE, "server_error"),
        (Reason.QUEUE_FULL, "rate_limit_exceeded"),
        (Reason.CONTEXT_OVERFLOW, "invalid_prompt"),
    ],
)
def test_a_stream_that_fails_ends_with_the_failed_response(reason, code):
    question = ask()
    begun = b"".join(question.answer.add(frame(TextDelta("a"))))
    assert question.failure_event is not None
    last = events(begun + question.failure_event(BridgeError(reason, "so it is")))[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"] == {"code": code, "message": "so it is"}


def test_an_answer_that_is_cut_costs_what_has_come():
    question = ask()
    for each in ANSWER[:3]:
        list(question.answer.add(each))
    assert question.answer.n_tokens == 3
    list(question.answer.add(done()))
    assert question.answer.n_tokens == 16


def test_one_call_is_enough_where_calls_are_not_parallel():
    question = ask(tools=[TOOL], parallel_tool_calls=False)
    body = whole(question, CALL, frame(TextDelta("more")), done("cancelled"))
    assert question.answer.has_enough
    assert [each["type"] for each in body["output"]] == ["function_call"]
    assert body["status"] == "completed"


@pytest.mark.parametrize(
    ("fields", "asked", "told"),
    [
        ({"include": ["message.output_text.logprobs"]}, 1, 0),
        ({"top_logprobs": 2}, 2, 2),
    ],
)
def test_log_probabilities_are_told_where_they_are_wanted(fields, asked, told):
    others = [
        Alternative(token=each, id=2, bytes=[98], logprob=-2.0) for each in ("b", "c")
    ]
    first = {"token": "a", "id": 1, "bytes": [97], "logprob": -1.0}
    token = msgspec.convert({**first, "top_logprobs": []}, Logprob)
    token = msgspec.structs.replace(token, top_logprobs=others)
    question = ask(**fields)
    assert isinstance(question.request, BlocksRequest)
    assert question.request.logprobs == asked
    data = streamed(question, frame(TextDelta("a"), logprobs=[token]), done())
    found = events(data)
    part = found[-1]["response"]["output"][0]["content"][0]
    delta = next(each for each in found if each["type"].endswith("text.delta"))
    assert delta["logprobs"] == part["logprobs"]
    assert part["logprobs"][0]["logprob"] == -1.0
    assert len(part["logprobs"][0]["top_logprobs"]) == told
