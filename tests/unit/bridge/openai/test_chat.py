import json
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from inferd.bridge.openai.chat_request import ask_chat
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.media import EncodedMedium
from inferd.bridge.translation.question import Question
from inferd.wire.blocks import (
    AudioBlock,
    BlocksRequest,
    ImageBlock,
    NamedTool,
    ResponseFormat,
    TextBlock,
)
from inferd.wire.responses import (
    Alternative,
    BlockFrame,
    Logprob,
    TextDelta,
    ThinkingDelta,
    ToolCall,
)
from tests.cases import each_case
from tests.fakes.bridge_answers import ASKED, done, generated, refused, streamed, whole

HI = [{"role": "user", "content": "hi"}]
TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object"}},
}
NAMED = {"type": "function", "function": {"name": "weather"}}


def ask(**fields: Any) -> Question:
    return ask_chat(json.dumps({"messages": HI, **fields}).encode(), ASKED)


def request(**fields: Any) -> BlocksRequest:
    return generated(ask(**fields))


def refusal(**fields: Any) -> tuple[Reason, str | None]:
    return refused(partial(ask, **fields))


def text(delta: str, **fields: Any) -> BlockFrame:
    return BlockFrame(id="req_1", block=TextDelta(delta), **fields)


def call(number: int = 0) -> BlockFrame:
    block = ToolCall(f"tc-{number}", "weather", {"city": "Köln"})
    return BlockFrame(id="req_1", block=block)


def events(question: Question, *frames: Any) -> list[Any]:
    """Give the decoded events of a streamed answer; the last one is its mark."""
    data = streamed(question, *frames)
    lines = [line.removeprefix(b"data: ") for line in data.split(b"\n\n") if line]
    assert lines.pop() == b"[DONE]"
    return [json.loads(line) for line in lines]


# --- requests -----------------------------------------------------------------------


def shown(url: str, **fields: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **fields}}


def heard(data: str, form: str) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": data, "format": form}}


def test_pictures_and_recordings_are_attached_in_their_order():
    of_a_cache = {"prompt_cache_breakpoint": {"mode": "explicit"}}  # without effect
    content = [
        {"type": "text", "text": "Compare.", **of_a_cache},
        {**shown("data:image/png;base64,AQ==", detail="low"), **of_a_cache},
        {**heard("Ag==", "wav"), **of_a_cache},
    ]
    asked = ask(messages=[*HI, {"role": "user", "content": content}])
    assert generated(asked).conversation[1].content == [
        TextBlock("Compare."),
        ImageBlock("1"),
        AudioBlock("2"),
    ]
    place = "messages[1].content"
    assert asked.media == [
        EncodedMedium("picture", b"\1", f"{place}[1].image_url.url", "1"),
        EncodedMedium("sound", b"\2", f"{place}[2].input_audio.data", "2"),
    ]


@each_case(
    ("part", "reason", "field"),
    [
        (shown("https://a/b.png"), Reason.UNSUPPORTED, ".image_url.url"),
        (
            shown("data:image/png;base64,AQ==", detail="huge"),
            Reason.INVALID_REQUEST,
            ".image_url.detail",
        ),
        (heard("AQ==", "flac"), Reason.INVALID_REQUEST, ".input_audio.format"),
        (heard("AQ", "wav"), Reason.INVALID_REQUEST, ".input_audio.data"),
        ({"type": "file", "file": {"file_id": "f"}}, Reason.UNSUPPORTED, ""),
    ],
)
def test_other_media_are_refused_with_their_place(part, reason, field):
    messages = [{"role": "user", "content": [part]}]
    assert refusal(messages=messages) == (reason, f"messages[0].content[0]{field}")


def test_a_conversation_with_calls_becomes_blocks():
    assistant = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city":\n"Köln"}'},
            }
        ],
        "reasoning_content": "hm",
    }
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
        assistant,
        {"role": "tool", "tool_call_id": "call_1", "content": "12 °C"},
    ]
    line = msgspec.json.encode(request(messages=messages).messages)
    assert b"\n" not in line
    assert json.loads(line) == [
        {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
        {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
        {
            "role": "assistant",
            "content": [
                {
                    "type": "tool_use",
                    "tool_call_id": "call_1",
                    "name": "weather",
                    "input": {"city": "Köln"},
                }
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_call_id": "call_1",
                    "content": [{"type": "text", "text": "12 °C"}],
                }
            ],
        },
    ]


def test_options_are_passed_on():
    found = request(
        model="m", temperature=0.5, stop="x", seed=3, max_completion_tokens=4, top_k=5
    )
    assert (found.model, found.temperature, found.stop) == ("m", 0.5, ["x"])
    assert (found.seed, found.max_tokens, found.top_k) == (3, 4, 5)
    assert (found.id, found.stream) == ("req_1", False)


def test_an_answer_without_a_bound_gets_the_bridges_own():
    assert request().max_tokens == 99


@each_case(
    ("effort", "thinking"),
    [(None, None), ("none", False), ("minimal", False), ("low", True), ("high", True)],
)
def test_effort_switches_reasoning(effort, thinking):
    assert request(reasoning_effort=effort).thinking is thinking


def test_tools_and_their_choice_are_passed_on():
    found = request(tools=[TOOL], tool_choice=NAMED)
    assert found.tool_choice == NamedTool("weather")
    assert found.tools[0].input_schema == msgspec.Raw(b'{"type":"object"}')
    assert request(tools=[TOOL], tool_choice="required").tool_choice == "required"


STRICT = {"type": "function", "function": {"name": "f", "strict": True}}
JSON = {"type": "json_object"}


@each_case(
    ("fields", "told"),
    [
        ({}, "tools[1].function.strict"),
        ({"tool_choice": "auto"}, "tools[1].function.strict"),
        ({"tool_choice": "required"}, ""),
        ({"tool_choice": NAMED}, ""),
        ({"tool_choice": "none"}, ""),
        ({"response_format": JSON}, ""),
        ({"response_format": {"type": "text"}}, "tools[1].function.strict"),
    ],
)
def test_tools_are_told_that_are_strict_where_nothing_holds_calls_to_it(fields, told):
    assert ask(tools=[TOOL, STRICT], **fields).unenforced == told
    assert ask(tools=[TOOL], **fields).unenforced == ""


def test_a_parsed_answer_of_openais_client_may_be_sent_back():
    function = {"name": "f", "arguments": "{}", "parsed_arguments": {"a": 1}}
    calls = [{"id": "c", "type": "function", "function": function}]
    answer = {"role": "assistant", "content": "{}", "parsed": {"b": 2}}
    plain = {"role": "assistant", "content": "{}", "tool_calls": calls}
    [_, found] = request(messages=[*HI, {**answer, "tool_calls": calls}]).conversation
    del function["parsed_arguments"]
    assert [found] == request(messages=[plain]).messages


def test_formats_become_structures():
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    named = {"name": "x", "schema": schema, "strict": True}
    found = request(response_format={"type": "json_schema", "json_schema": named})
    assert found.response_format is not None
    assert found.response_format.schema == msgspec.Raw(
        json.dumps(schema, separators=(",", ":")).encode()
    )
    found = request(response_format={"type": "json_object"})
    assert found.response_format is not None
    assert found.response_format.schema == msgspec.Raw(b'{"type":"object"}')
    assert request(response_format={"type": "text"}).response_format is None


def test_forms_as_llama_cpps_server_has_them_become_structures():
    schema = {"const": "42"}
    wanted = ResponseFormat(type="json_schema", schema=msgspec.Raw(b'{"const":"42"}'))
    assert request(json_schema=schema).response_format == wanted
    as_object = {"type": "json_object", "schema": schema}
    assert request(response_format=as_object).response_format == wanted
    unnamed = {"type": "json_schema", "json_schema": {"schema": schema}}
    assert request(response_format=unnamed).response_format == wanted
    assert request(grammar='root ::= "a"').response_format == ResponseFormat(
        type="gbnf", grammar='root ::= "a"'
    )


@each_case(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "x", "mood": 1}]}, "messages[0]"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"json_schema": {}, "grammar": 'root ::= "a"'}, "grammar"),
        (
            {"response_format": {"type": "json_object"}, "json_schema": {}},
            "json_schema",
        ),
        ({"seed": -1}, "seed"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields, param):
    assert refusal(**fields) == (Reason.INVALID_REQUEST, param)


@each_case(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"store": True}, "store"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"functions": []}, "functions"),
    ],
)
def test_what_is_not_served_is_refused_and_not_dropped(fields, param):
    assert refusal(**fields) == (Reason.UNSUPPORTED, param)


@given(st.text(alphabet='{}[]",:a1 '))
def test_arguments_that_are_no_json_are_refused(arguments):
    function = {"name": "f", "arguments": arguments}
    calls = [{"id": "c", "type": "function", "function": function}]
    place = "messages[0].tool_calls[0].function.arguments"
    try:
        json.loads(arguments or "{}")
    except ValueError:
        asked = {"messages": [{"role": "assistant", "tool_calls": calls}]}
        assert refusal(**asked) == (Reason.INVALID_REQUEST, place)


# --- answers ------------------------------------------------------------------------


def test_a_stream_has_role_text_reason_and_usage():
    question = ask(stream=True, stream_options={"include_usage": True}, model="m")
    first, a, b, last, usage = events(question, text("Hal"), text("lo"), done())
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [each["choices"][0]["delta"]["content"] for each in (a, b)] == ["Hal", "lo"]
    assert last["choices"][0]["finish_reason"] == "stop"
    assert {each["id"] for each in (first, a, last, usage)} == {"chatcmpl-1"}
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 16)
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert first["usage"] is None
    assert question.answer.n_tokens == 16


def test_usage_is_left_out_unless_it_is_asked_for():
    *_, last = events(ask(stream=True), text("x"), done())
    assert last["choices"]
    assert "usage" not in last


def test_a_streamed_call_has_its_name_first_and_its_arguments_later():
    question = ask(stream=True, tools=[TOOL])
    _, head, arguments, last = events(question, call(), done("tool_use"))
    [first] = head["choices"][0]["delta"]["tool_calls"]
    [rest] = arguments["choices"][0]["delta"]["tool_calls"]
    assert (first["index"], first["id"], first["type"]) == (0, "call_1_0", "function")
    assert first["function"] == {"name": "weather", "arguments": ""}
    assert json.loads(rest["function"]["arguments"]) == {"city": "Köln"}
    assert last["choices"][0]["finish_reason"] == "tool_calls"


def test_a_whole_answer_has_text_reasoning_and_calls():
    thought = BlockFrame(id="req_1", block=ThinkingDelta("hm"))
    found = whole(ask(tools=[TOOL]), thought, text("Hi"), call(), done("tool_use"))
    message = found["choices"][0]["message"]
    assert message["content"] == "Hi"
    assert message["reasoning"] == message["reasoning_content"] == "hm"
    assert [each["id"] for each in message["tool_calls"]] == ["call_1_0"]
    assert found["model"] == "chat"
    calls_alone = whole(ask(tools=[TOOL]), call(), done("tool_use"))
    assert calls_alone["choices"][0]["message"]["content"] is None


@pytest.mark.parametrize("end", ["cancelled", "tool_use", "max_tokens"])
def test_one_call_is_enough_where_parallel_ones_are_not_wanted(end):
    question = ask(tools=[TOOL], parallel_tool_calls=False)
    assert not question.answer.has_enough
    found = whole(question, call(0), call(1), done(end))
    assert question.answer.has_enough
    assert len(found["choices"][0]["message"]["tool_calls"]) == 1
    assert found["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length")],
)
def test_the_reason_of_the_end_is_in_openais_words(reason, finish):
    found = whole(ask(), text("x"), done(reason))
    assert found["choices"][0]["finish_reason"] == finish


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, Reason.CANCELLED),
        ({"detail": "deadline"}, Reason.DEADLINE),
    ],
)
def test_an_answer_that_others_cut_is_no_answer(fields, reason):
    with pytest.raises(BridgeError) as caught:
        whole(ask(), text("x"), done("cancelled", **fields))
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("wanted", "sent", "shown"), [(None, 1, 0), (0, 1, 0), (2, 2, 2)]
)
def test_logprobs_have_as_many_alternatives_as_are_wanted(wanted, sent, shown):
    fields = {} if wanted is None else {"top_logprobs": wanted}
    question = ask(logprobs=True, **fields)
    assert isinstance(question.request, BlocksRequest)
    assert question.request.logprobs == sent
    token: Any = {"token": "x", "id": 1, "bytes": [120], "logprob": -0.5}
    chosen = Logprob(**token, top_logprobs=[Alternative(**token)] * sent)
    found = whole(question, text("x", logprobs=[chosen]), done())
    [entry] = found["choices"][0]["logprobs"]["content"]
    assert (entry["token"], entry["bytes"], entry["logprob"]) == ("x", [120], -0.5)
    assert len(entry["top_logprobs"]) == shown
    assert whole(ask(), text("x"), done())["choices"][0]["logprobs"] is None


def test_an_answer_that_is_cut_has_cost_what_has_come_of_it():
    question = ask(stream=True)
    for delta in "abc":
        assert list(question.answer.add(text(delta)))
    assert question.answer.n_tokens == 3


@given(st.lists(st.text(min_size=1), max_size=5))
def test_streamed_or_not_the_text_is_the_same(deltas):
    frames = [*map(text, deltas), done()]
    chunks = events(ask(stream=True), *frames)
    streamed = "".join(
        each["choices"][0]["delta"].get("content", "") for each in chunks
    )
    found = whole(ask(), *frames)["choices"][0]["message"]["content"]
    assert streamed == found == "".join(deltas)
