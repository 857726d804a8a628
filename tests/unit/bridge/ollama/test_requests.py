import json
from base64 import b64encode
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from ollama._types import Options

from inferd.bridge.ollama.chat import ask_chat
from inferd.bridge.ollama.durations import (
    AS_CONFIGURED,
    MAX_KEEP_ALIVE_S,
    MIN_KEEP_ALIVE_S,
    keep_alive_s,
)
from inferd.bridge.ollama.generate import ask_generate
from inferd.bridge.ollama.sampling import other_names
from inferd.bridge.ollama.tables import OPTIONS
from inferd.bridge.ollama.vectors import ask_embed, ask_embedding
from inferd.bridge.translation.failures import BridgeError, Reason
from inferd.bridge.translation.question import Question
from inferd.limits.protocol import U32_MAX
from inferd.wire.blocks import BlocksRequest
from inferd.wire.requests import EmbedRequest
from tests.cases import each_case
from tests.fakes.bridge_answers import ASKED, generated, refused

HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}


def ask(**fields: Any) -> Question:
    sent = {"model": "small", "messages": HI, **fields}
    return ask_chat(json.dumps(sent).encode(), ASKED)


def request(**fields: Any) -> BlocksRequest:
    return generated(ask(**fields))


def refusal(**fields: Any) -> tuple[Reason, str | None]:
    return refused(partial(ask, **fields))


def generate(**fields: Any) -> Question:
    return ask_generate(json.dumps({"model": "small", **fields}).encode(), ASKED)


def prompt(found: BlocksRequest) -> Any:
    return json.loads(msgspec.json.encode(found.messages))


# --- prompts ------------------------------------------------------------------------


def test_a_conversation_with_calls_becomes_blocks():
    call = {"function": {"name": "weather", "arguments": {"city": "Köln"}}}
    found = request(
        messages=[
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "thinking": "hm", "tool_calls": [call]},
            {"role": "tool", "tool_name": "weather", "content": "12 °C"},
        ],
        tools=[TOOL],
    )
    system, user, assistant, result = prompt(found)
    assert system == {
        "role": "system",
        "content": [{"type": "text", "text": "be brief"}],
    }
    assert user["content"] == [{"type": "text", "text": "weather?"}]
    [use] = assistant["content"]
    assert (use["name"], use["input"]) == ("weather", {"city": "Köln"})
    [told] = result["content"]
    assert (result["role"], told["type"]) == ("user", "tool_result")
    assert told["tool_call_id"] == use["tool_call_id"]
    assert [tool.name for tool in found.tools] == ["weather"]


def test_a_result_belongs_to_the_call_that_it_names():
    def call(name: str, **fields: Any) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": {}}, **fields}

    def result(text: str, **fields: Any) -> dict[str, Any]:
        return {"role": "tool", "content": text, **fields}

    calls = [call("a"), call("b", id="own"), call("a"), call("a"), call("a")]
    *_, first, second, third, fourth = prompt(
        request(
            messages=[
                *HI,
                {"role": "assistant", "tool_calls": calls},
                result("1", tool_name="b"),
                result("2"),
                result("3", tool_name="a", tool_call_id="call-3"),
                result("4", tool_name="a"),
            ]
        )
    )
    results = (first, second, third, fourth)
    ids = [each["content"][0]["tool_call_id"] for each in results]
    assert ids == ["own", "call-0", "call-3", "call-2"]
    assert refusal(messages=[*HI, result("1")]) == (
        Reason.INVALID_REQUEST,
        "messages[1]",
    )


def test_pictures_are_handed_on_with_their_places():
    data = b64encode(b"png").decode()
    found = ask(messages=[{**HI[0], "images": [data]}])
    [medium] = found.media
    assert (medium.data, medium.place) == (b"png", "messages[0].images[0]")
    [message] = prompt(generated(found))
    assert message["content"] == [
        {"type": "image", "attachment_id": medium.attachment_id},
        {"type": "text", "text": "hi"},
    ]
    assert [each.place for each in generate(prompt="x", images=[data]).media] == [
        "images[0]"
    ]
    bad = [{**HI[0], "images": ["?"]}]
    assert refusal(messages=bad) == (Reason.INVALID_REQUEST, "messages[0].images[0]")


def test_a_prompt_is_a_message_with_its_system():
    found = generate(prompt="hi", system="be brief", suffix="", context=[], raw=False)
    assert [each["role"] for each in prompt(generated(found))] == ["system", "user"]


@each_case(
    ("field", "value"),
    [
        ("raw", True),
        ("template", "{{ .Prompt }}"),
        ("suffix", "}"),
        ("context", [1]),
        ("width", 512),
        ("mood", "good"),
    ],
)
def test_what_a_prompt_cannot_have_is_refused_by_name(field, value):
    with pytest.raises(BridgeError) as caught:
        generate(prompt="hi", **{field: value})
    assert caught.value.param == field


# --- options ------------------------------------------------------------------------


def test_all_options_of_the_client_are_known():
    assert set(Options.model_fields) <= {field.name for field in OPTIONS.fields}


def test_options_are_passed_on():
    options = {
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.9,
        "min_p": 0.1,
        "seed": 7,
        "stop": "x",
        "num_predict": 5,
        "repeat_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "num_ctx": 2048,
        "mirostat": 0,
        "num_gpu": None,
    }
    found = request(options=options)
    assert (found.max_tokens, found.stop, found.min_n_ctx) == (5, ["x"], 2048)
    for name in ("temperature", "top_k", "top_p", "min_p", "seed"):
        assert getattr(found, name) == options[name]
    for name in ("repeat_penalty", "presence_penalty", "frequency_penalty"):
        assert getattr(found, name) == options[name]
    assert request(options={"seed": -1}).seed is None


@each_case(
    ("given", "expected"), [(None, 99), (-1, U32_MAX), (-2, U32_MAX), (0, U32_MAX)]
)
def test_an_answer_without_a_bound_ends_with_the_context(given, expected):
    assert request(options={"num_predict": given}).max_tokens == expected


@each_case(
    ("option", "value"),
    [("mirostat", 1), ("num_gpu", 99), ("typical_p", 0.5), ("top_k", -1), ("x", 1)],
)
def test_an_option_that_is_not_honoured_is_refused(option, value):
    _, param = refusal(options={option: value})
    assert param == f"options.{option}"


# --- the rest -----------------------------------------------------------------------


@each_case(
    ("think", "asked", "may_do_without"),
    [
        (None, True, True),
        (True, True, False),
        ("high", True, False),
        (False, False, False),
    ],
)
def test_reasoning_is_on_unless_it_is_switched_off(think, asked, may_do_without):
    found = ask(think=think)
    assert (generated(found).thinking, found.reasons_if_able) == (asked, may_do_without)


def test_the_form_of_an_answer_is_enforced():
    for form, schema in (("json", {"type": "object"}), (SCHEMA, SCHEMA)):
        found = request(format=form).response_format
        assert found is not None
        assert json.loads(msgspec.json.encode(found.schema)) == schema
    assert request(format="").response_format is None
    assert refusal(format="yaml") == (Reason.INVALID_REQUEST, "format")


def test_log_probabilities_are_asked_for():
    assert request(logprobs=True).logprobs == 1
    assert request(logprobs=True, top_logprobs=4).logprobs == 4
    assert refusal(top_logprobs=4) == (Reason.INVALID_REQUEST, "top_logprobs")


@each_case(
    ("given", "expected"),
    [
        (None, None),
        ("", None),
        (-1, AS_CONFIGURED),
        ("-1m", AS_CONFIGURED),
        (0, MIN_KEEP_ALIVE_S),
        ("0s", MIN_KEEP_ALIVE_S),
        (30, 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("300ms", 0.3),
        ("90000h", MAX_KEEP_ALIVE_S),
    ],
)
def test_a_duration_is_seconds(given, expected):
    assert keep_alive_s(given) == expected
    assert keep_alive_s("0") == MIN_KEEP_ALIVE_S


@given(st.text(max_size=90))
def test_any_text_is_a_duration_or_refused(text):
    try:
        found = keep_alive_s(text)
    except BridgeError as error:
        assert error.param == "keep_alive"  # noqa: PT017  # either is right
    else:
        assert found is None or 0 <= found <= MAX_KEEP_ALIVE_S


@each_case("text", ["5", "m", "5 m", "5mx", "x5m", "--5m", "1h" * 40])
def test_what_is_no_duration_is_refused(text):
    assert refusal(keep_alive=text) == (Reason.INVALID_REQUEST, "keep_alive")


def test_no_prompt_loads_the_model_and_keeps_nothing():
    for found in (
        ask(messages=[], tools=[TOOL], format="json"),
        generate(keep_alive=0),
    ):
        sent = generated(found)
        assert (sent.prefill_only, sent.max_tokens, sent.cache) == (True, None, "off")
        assert (sent.tools, sent.response_format, sent.thinking) == ([], None, None)
    assert generated(generate(keep_alive=0)).keep_alive_s == MIN_KEEP_ALIVE_S


def test_a_model_has_two_names_where_one_has_the_latest_tag():
    assert other_names("a") == ("a:latest",)
    assert other_names("a:latest") == ("a",)
    assert other_names("a:8b") == ()
    assert refusal(model="")[1] == "model"


def test_texts_are_embedded():
    found = ask_embed(
        b'{"model":"e","input":["a","b"],"dimensions":3,"truncate":true,'
        b'"options":{"num_ctx":512},"keep_alive":"1m"}',
        ASKED,
    ).request
    assert isinstance(found, EmbedRequest)
    assert (found.input, found.dimensions, found.min_n_ctx) == (["a", "b"], 3, 512)
    assert found.keep_alive_s == 60
    one = ask_embedding(b'{"model":"e","prompt":"a"}', ASKED).request
    assert isinstance(one, EmbedRequest)
    assert one.input == ["a"]
