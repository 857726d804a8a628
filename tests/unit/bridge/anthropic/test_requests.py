import json
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from inferd.bridge.anthropic.request import ask_count, ask_message
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.media import EncodedMedium
from inferd.wire.blocks import (
    BlocksRequest,
    ImageBlock,
    NamedTool,
    TextBlock,
    ToolResultBlock,
)
from tests.cases import each_case
from tests.fakes.bridge_answers import ASKED, generated, refused

HI = [{"role": "user", "content": "hi"}]
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"name": "weather", "description": "Tells it.", "input_schema": SCHEMA}


def body(**fields: Any) -> bytes:
    return json.dumps({"max_tokens": 9, "messages": HI, **fields}).encode()


def request(**fields: Any) -> BlocksRequest:
    return generated(ask_message(body(**fields), ASKED))


def refusal(**fields: Any) -> tuple[Reason, str | None]:
    return refused(partial(ask_message, body(**fields), ASKED))


def prompt(found: BlocksRequest) -> Any:
    return json.loads(msgspec.json.encode((found.messages, found.tools)))


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


# --- prompts ------------------------------------------------------------------------


def test_a_conversation_with_calls_becomes_blocks():
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1"}
    found = request(
        system="be brief",
        messages=[
            *HI,
            {"role": "assistant", "content": [thought, text("let me see"), call]},
            {"role": "system", "content": "now in German"},
            {"role": "user", "content": [{**result, "content": "12 °C"}, text("and?")]},
        ],
    )
    block = {"type": "tool_use", "tool_call_id": "toolu_1", "name": "weather"}
    results = {"type": "tool_result", "tool_call_id": "toolu_1"}
    assert prompt(found)[0] == [
        {"role": "system", "content": [text("be brief")]},
        {"role": "user", "content": [text("hi")]},
        {
            "role": "assistant",
            "content": [text("let me see"), {**block, "input": {"a": 1}}],
        },
        {"role": "system", "content": [text("now in German")]},
        {
            "role": "user",
            "content": [{**results, "content": [text("12 °C")]}, text("and?")],
        },
    ]


def test_the_result_of_a_failed_call_says_so():
    result = {"type": "tool_result", "tool_use_id": "t", "is_error": True}
    found = request(
        messages=[{"role": "user", "content": [{**result, "content": [text("boom")]}]}]
    )
    assert prompt(found)[0][0]["content"][0]["content"] == [
        text("Error: "),
        text("boom"),
    ]


def agent_turn(number: int, history: list[Any]) -> BlocksRequest:
    """Translate a turn as coding agents send it: the marks move, the header changes."""
    header = (
        f"x-anthropic-billing-header: cc_version=2.1.37.{number:x}fe; "
        f"cc_entrypoint=cli; cch={number * 7919:05x};"
    )
    last = history[-1]
    marked = {**last, "content": [{**text(last["content"]), **CACHED}]}
    return request(
        system=[
            text(header),
            {**text("You are an agent."), **CACHED},
            {**text("\nTools are below."), **CACHED},
        ],
        messages=[*history[:-1], marked],
        tools=[{**TOOL, **CACHED}],
        thinking={"type": "adaptive"},
        context_management={"edits": [{"type": "clear_thinking_20251015"}]},
        metadata={"user_id": "u"},
        stream=True,
    )


def test_each_turn_of_a_coding_agent_begins_with_the_prompt_of_the_one_before():
    history = [{"role": "user", "content": "fix it"}]
    messages, tools = prompt(agent_turn(1, history))
    history += [
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "test it"},
    ]
    later_messages, later_tools = prompt(agent_turn(2, history))
    assert later_tools == tools
    assert later_messages[: len(messages)] == messages
    assert messages[0]["content"] == [
        text("You are an agent."),
        text("\nTools are below."),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
def test_a_billing_header_is_no_more_than_its_line(end):
    head = f"X-Anthropic-Billing-Header: cch=1;{end}"
    assert prompt(request(system=f"{head}Be brief.\nAlways.")) == prompt(
        request(system="Be brief.\nAlways.")
    )
    inside = f"Be brief.\n{head}Always."
    assert prompt(request(system=inside))[0][0]["content"] == [text(inside)]


@given(st.text() | st.lists(st.text()).map(lambda parts: [*map(text, parts)]))
def test_a_system_prompt_is_passed_on_whole(system):
    whole = (
        system if isinstance(system, str) else "".join(each["text"] for each in system)
    )
    messages = request(system=system).conversation
    joined = "".join(
        block.text for block in messages[0].content if hasattr(block, "text")
    )
    assert joined == (whole or "hi")


# --- options ------------------------------------------------------------------------


def test_fields_have_anthropics_names_where_the_daemon_refuses_their_values():
    names = ask_message(body(stop_sequences=[""]), ASKED).field_names
    assert (names["stop"], names["keep_alive_s"]) == ("stop_sequences", "keep_alive")


def test_options_are_passed_on():
    found = request(
        model="small",
        temperature=0,
        top_p=0.5,
        top_k=3,
        stop_sequences=["\n\n"],
        keep_alive=5,
        stream=True,
    )
    assert found == BlocksRequest(
        id="req_1",
        model="small",
        messages=found.messages,
        temperature=0,
        top_p=0.5,
        top_k=3,
        stop=["\n\n"],
        keep_alive_s=5,
        max_tokens=9,
        stream=True,
    )


@each_case(
    ("choice", "expected"),
    [
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "weather"}, NamedTool("weather")),
    ],
)
def test_the_choice_of_a_tool_is_passed_on(choice, expected):
    assert request(tools=[TOOL], tool_choice=choice).tool_choice == expected


def test_a_tool_is_described_with_its_examples():
    found = request(tools=[{**TOOL, "input_examples": [{"city": "Köln"}]}]).tools[0]
    assert found.description == 'Tells it.\n\nExamples of its input:\n{"city":"Köln"}'
    assert json.loads(bytes(found.input_schema)) == SCHEMA


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "disabled"}, False),
        ({"type": "adaptive", "display": "omitted"}, None),
    ],
)
def test_reasoning_is_asked_for_where_it_is_enabled(thinking, expected):
    assert request(thinking=thinking).thinking is expected


@pytest.mark.parametrize("kind", ["adaptive", "enabled", "disabled"])
def test_a_named_model_may_answer_an_adaptive_request_without_reasoning(kind):
    fields = {"model": "small", "thinking": {"type": kind}}
    counted = json.dumps({"messages": HI, **fields}).encode()
    for found in (ask_message(body(**fields), ASKED), ask_count(counted, ASKED)):
        assert generated(found).thinking is (kind != "disabled")
        assert found.reasons_if_able is (kind == "adaptive")


@each_case(
    ("fields", "told"),
    [
        ({}, "tools[1].strict"),
        ({"tool_choice": {"type": "auto"}}, "tools[1].strict"),
        ({"tool_choice": {"type": "any"}}, ""),
        ({"tool_choice": {"type": "none"}}, ""),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, ""),
    ],
)
def test_tools_are_told_that_are_strict_where_nothing_holds_calls_to_it(fields, told):
    strict = {**TOOL, "name": "time", "description": None, "strict": True}
    found = ask_message(body(tools=[TOOL, strict], **fields), ASKED)
    assert found.unenforced == told


def test_a_schema_of_the_answer_is_enforced():
    form = {"type": "json_schema", "schema": SCHEMA}
    found = request(output_config={"effort": "high", "format": form}).response_format
    assert found is not None
    assert found.type == "json_schema"
    assert json.loads(msgspec.json.encode(found.schema)) == SCHEMA


def test_no_tokens_of_an_answer_compute_the_prompt_alone():
    found = request(max_tokens=0)
    assert (found.prefill_only, found.max_tokens) == (True, None)


def test_a_count_has_the_whole_prompt_and_computes_nothing():
    fields = {"system": "be brief", "tools": [TOOL], "messages": HI}
    found = generated(ask_count(json.dumps(fields).encode(), ASKED))
    assert found.max_tokens == 0
    assert prompt(found) == prompt(request(**fields))


# --- refusals -----------------------------------------------------------------------


@each_case(
    ("fields", "reason", "param"),
    [
        ({"colour": 1}, Reason.UNKNOWN_FIELD, "colour"),
        ({"messages": []}, Reason.INVALID_REQUEST, "messages"),
        ({"max_tokens": -1}, Reason.INVALID_REQUEST, "max_tokens"),
        ({"speed": "fast"}, Reason.UNSUPPORTED, "speed"),
        ({"mcp_servers": [{}]}, Reason.UNSUPPORTED, "mcp_servers"),
        ({"thread": {"type": "create"}}, Reason.UNSUPPORTED, "thread"),
        ({"container": "c"}, Reason.UNSUPPORTED, "container"),
        ({"tool_choice": {"type": "any"}}, Reason.INVALID_REQUEST, "tool_choice"),
        (
            {"tools": [TOOL, {"name": 4, "input_schema": {}}]},
            Reason.INVALID_REQUEST,
            "tools[1].name",
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "tool"}},
            Reason.INVALID_REQUEST,
            "tool_choice.name",
        ),
        (
            {"tools": [TOOL, {"type": "bash_20250124", "name": "bash"}]},
            Reason.UNSUPPORTED,
            "tools[1]",
        ),
        (
            {"messages": [*HI, {"role": "assistant", "content": "It is"}]},
            Reason.UNSUPPORTED,
            "messages",
        ),
        (
            {"messages": [{"role": "user", "content": []}]},
            Reason.INVALID_REQUEST,
            "messages[0].content",
        ),
        (
            {"messages": [{"role": "user", "content": [{**text("a"), "b": 1}]}]},
            Reason.INVALID_REQUEST,
            "messages[0].content[0]",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_its_place(fields, reason, param):
    assert refusal(**fields) == (reason, param)


@pytest.mark.parametrize("block", [{"text": "hi"}, {"type": "document"}])
def test_instructions_are_blocks_that_say_that_they_are_text(block):
    for fields in ({"system": [block]}, {"messages": [said([block]), *HI]}):
        reason, _ = refusal(**fields)
        assert reason in {Reason.INVALID_REQUEST, Reason.UNSUPPORTED}


def said(content: list[Any]) -> dict[str, Any]:
    return {"role": "system", "content": content}


def picture(**source: str) -> dict[str, Any]:
    return {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}}


def test_pictures_are_attached_in_turns_and_in_results():
    one = picture(type="base64", media_type="image/png", data="AQ==")
    two = picture(type="base64", media_type="image/jpeg", data="Ag==")
    result = {"type": "tool_result", "tool_use_id": "t", "content": [text("see"), two]}
    content = [one, text("what?"), result]
    asked = ask_message(body(messages=[{"role": "user", "content": content}]), ASKED)
    [message] = generated(asked).conversation
    assert message.content == [
        ImageBlock("1"),
        TextBlock("what?"),
        ToolResultBlock("t", [TextBlock("see"), ImageBlock("2")]),
    ]
    place = "messages[0].content"
    assert asked.media == [
        EncodedMedium("picture", b"\1", f"{place}[0].source.data", "1"),
        EncodedMedium("picture", b"\2", f"{place}[2].content[1].source.data", "2"),
    ]


@each_case(
    ("source", "reason", "field"),
    [
        ({"type": "url", "url": "http://a/b"}, Reason.UNSUPPORTED, ".url"),
        ({"type": "file", "file_id": "f"}, Reason.UNSUPPORTED, ".file_id"),
        (
            {"type": "base64", "media_type": "image/png", "data": "%"},
            Reason.INVALID_REQUEST,
            ".data",
        ),
        ({"type": "base64", "data": "AQ=="}, Reason.INVALID_REQUEST, ".media_type"),
    ],
)
def test_other_sources_of_pictures_are_refused_with_their_place(source, reason, field):
    place = "messages[0].content[0].source"
    messages = [{"role": "user", "content": [picture(**source)]}]
    assert refusal(messages=messages) == (reason, place + field)


@pytest.mark.parametrize("kind", ["document", "search_result"])
def test_other_media_are_refused_in_messages_and_in_results(kind):
    block = {"type": kind, "source": {"type": "base64", "data": "", "media_type": ""}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
    for content, place in (block, "[0]"), (result, "[0].content[0]"):
        assert refusal(messages=[{"role": "user", "content": [content]}]) == (
            Reason.UNSUPPORTED,
            f"messages[0].content{place}",
        )


def test_a_bound_of_the_answer_is_required():
    with pytest.raises(BridgeError, match="max_tokens"):
        ask_message(json.dumps({"messages": HI}).encode(), ASKED)
