"""The kind ``anthropic`` against the types of Anthropic's own package, and recorded answers.

``TOOL_USE`` is ``tests/lib/streaming/fixtures/tool_use_response.txt`` of
anthropics/anthropic-sdk-python (commit 0c20cf40), and ``THINKING`` the recorded exchange
``test_anthropic_model_thinking_part_stream.yaml`` of pydantic/pydantic-ai (commit 07b87749), of
which deltas are left out and the signature is cut. The exchanges of the golden conversations
have the form of these, with other words and counts, and are held to the package's types.
Where errors were found: whoz-oss/coday#26, docker/docker-agent#569, and the documentation
https://platform.claude.com/docs/en/api/errors for their types and for the status 529.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from anthropic.types import RawMessageStreamEvent
from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from hypothesis import given, strategies as st
from pydantic import TypeAdapter

from inferd.backend.job import Turn
from inferd.config.kinds.anthropic import ANTHROPIC, AnthropicSettings
from inferd.ipc.worker import Overflow
from inferd.wire.responses import Usage
from inferd.worker.backend import RefusedError
from inferd.worker.remote.anthropic.api import ANTHROPIC_API
from inferd.worker.remote.api import AnswerForm
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.generic_writer import CLOSE_THOUGHT, OPEN_THOUGHT
from tests.unit.worker.remote.conversations import ADD, CONVERSATIONS, NUMBER, replay
from tests.unit.worker.remote.openai.jobs import job, sampling
from tests.unit.worker.remote.streams import (
    AGENT,
    FORCED,
    LOCAL,
    NAMED,
    bodies,
    is_known,
    read,
    split,
    written,
)

SAMPLERS: Final = {"temperature", "top_p", "top_k"}
"""Which older models take, and the package's newest types have no more: a recorded exchange with
Claude Haiku 4.5 is ``test_anthropic_sampling_settings_reach_the_wire.yaml`` of
pydantic/pydantic-ai."""
EXCHANGES: Final = Path(__file__).parent / "exchanges"
REQUEST: Final[TypeAdapter[Any]] = TypeAdapter(MessageCreateParamsStreaming)
COUNT: Final[TypeAdapter[Any]] = TypeAdapter(MessageCountTokensParams)
EVENT: Final[TypeAdapter[Any]] = TypeAdapter(RawMessageStreamEvent)

TOOL_USE: Final = b"""\
event: message_start
data: {"type":"message_start","message":{"id":"msg_019Q1hrJbZG26Fb9BQhrkHEr","type":"message","role":"assistant","model":"claude-sonnet-4-20250514","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":377,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1,"service_tier":"standard"}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"I"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"'ll check the current weather in Paris for you."}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_01NRLabsLyVHZPKxbKvkfSMn","name":"get_weather","caller":{"type":"direct"},"input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\\"locati"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"on\\": \\"P"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"ar"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"is\\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":65}}

event: message_stop
data: {"type":"message_stop"}

"""
THINKING: Final = b"""\
event: message_start
data: {"type":"message_start","message":{"model":"claude-sonnet-4-20250514","id":"msg_01A6gwM9ZYySVuWAZxJ5Keko","type":"message","role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":43,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":1,"service_tier":"standard"}}               }

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}             }

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"This"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":" is a straight"}         }

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":""}          }

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"Eu4CCkYICxgCKkCptg1Gj6hlyXcXwEx/"}       }

event: content_block_stop
data: {"type":"content_block_stop","index":0    }

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}               }

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Here's"} }

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" how to cross the"}         }

event: content_block_stop
data: {"type":"content_block_stop","index":1              }

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":43,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":277}      }

event: message_stop
data: {"type":"message_stop"}

"""


def settings(**fields: Any) -> AnthropicSettings:
    able: dict[str, Any] = {
        "tools": True,
        "thinking": True,
        "structure": True,
        "vision": True,
    }
    samplers = {"samplers": ("temperature", "top_p", "top_k")}
    address = "https://api.anthropic.com"
    given = {"name": "r", "base_url": address, "model": "claude-sonnet-4-6"}
    return AnthropicSettings(**{**given, **able, **samplers, **fields})


def is_request(body: dict[str, object]) -> bool:
    """Tell whether a body is known, but for its parameters of sampling."""
    return is_known(REQUEST, {k: v for k, v in body.items() if k not in SAMPLERS})


def test_every_golden_conversation_comes_to_the_same():
    for name, conversation in CONVERSATIONS.items():
        found = replay(ANTHROPIC_API, settings(), name, EXCHANGES)
        assert (name, found) == (name, conversation.outcome)


def test_the_golden_exchanges_have_the_form_of_the_vendors_types():
    for request, parts in bodies(EXCHANGES):
        assert is_request(json.loads(request)), request
        for part in parts:
            if b'"ping"' not in part:  # which the package filters out before
                EVENT.validate_json(part, strict=False)


def test_a_recorded_call_has_the_text_before_it_and_its_counts():
    pieces, end = read(
        ANTHROPIC_API,
        settings(),
        split(AnswerForm.EVENTS, TOOL_USE),
        job(tools=(ADD,), max_tokens=99),
    )
    text, more, _, call, _ = pieces
    assert (text, more) == (b"I", b"'ll check the current weather in Paris for you.")
    assert msgspec.json.decode(call) == {
        "name": "get_weather",
        "arguments": {"location": "Paris"},
    }
    assert (end.stop_reason, end.usage) == ("end", Usage(377, 65))


def test_recorded_reasoning_is_told_from_text_and_its_signature_is_left_out():
    parts = [*split(AnswerForm.EVENTS, THINKING)]
    asked = job(thinks=True, max_tokens=99)
    assert read(ANTHROPIC_API, settings(), parts, asked)[0] == [
        *(OPEN_THOUGHT, b"This", b" is a straight", CLOSE_THOUGHT),
        *(b"Here's", b" how to cross the"),
    ]


def test_a_conversation_is_written_as_the_vendors_types_have_it():
    body = written(ANTHROPIC_API, settings(), AGENT)
    assert is_request(body)
    assert body["system"] == "Be brief.\n\nBe kind."
    first, _, _, _, results, _ = body["messages"]
    assert [block["type"] for block in first["content"]] == ["text", "image", "text"]
    # ids are new, each belongs to one call, and the results of one answer are one message
    assert [
        (block["tool_use_id"], block["content"][0]["text"])
        for block in results["content"]
    ] == [("toolu_2", "3"), ("toolu_1", "4")]
    assert (body["temperature"], body["top_p"], body["top_k"]) == (0.5, 0.9, 3)
    for choice in (FORCED, NAMED):
        forced = job(tools=(ADD,), tool_choice=choice, structure=NUMBER)
        assert is_request(written(ANTHROPIC_API, settings(), forced))
    later = job(
        turns=[Turn("user", "hi"), Turn("system", "Be brief."), Turn("user", "")]
    )
    assert is_request(written(ANTHROPIC_API, settings(), later))
    thinks = job(thinks=True, max_tokens=2000)
    budget = written(ANTHROPIC_API, settings(thinking_budget=1024), thinks)
    assert is_request(budget)
    assert budget["thinking"] == {"type": "enabled", "budget_tokens": 1024}


def test_defaults_of_the_protocol_ask_for_nothing():
    asked = job(sampling=sampling(temperature=1.0, top_p=0.95, top_k=64))
    assert (
        not {"temperature", "top_p", "top_k"}
        & written(ANTHROPIC_API, settings(), asked).keys()
    )


def test_tokens_are_counted_of_the_same_prompt_where_it_is_configured():
    counting = ANTHROPIC_API.counting
    assert counting is not None
    assert counting.write(settings(), AGENT) is None
    asked = job(turns=AGENT.turns, tools=AGENT.tools)
    request = counting.write(settings(count_tokens=True), asked)
    assert request is not None
    assert request.path == "/messages/count_tokens"
    assert is_known(COUNT, json.loads(request.body))
    assert counting.read(b'{"input_tokens": 14}') == 14
    with pytest.raises(RemoteError, match="not part of an answer"):
        counting.read(b'{"input_tokens": "many"}')


def test_what_the_api_cannot_do_is_refused_by_name():
    hot = sampling(temperature=1.5)
    refused: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        **{field: (given, {}) for field, given in LOCAL.items()},
        "seed": ({"sampling": sampling(seed_given=True)}, {}),
        "top_k": ({"sampling": sampling(top_k=3)}, {"samplers": ()}),
        "min_p": ({"sampling": sampling(min_p=0.1)}, {}),
        "repeat_penalty": ({"sampling": sampling(repeat_penalty=1.1)}, {}),
        "presence_penalty": ({"sampling": sampling(presence_penalty=0.1)}, {}),
        "frequency_penalty": ({"sampling": sampling(frequency_penalty=0.1)}, {}),
        "temperature over 1": ({"sampling": hot}, {}),
        "thinking with a temperature": (
            {"thinks": True, "sampling": sampling(temperature=0.5)},
            {},
        ),
        "thinking with a forced call": (
            {"thinks": True, "tools": (ADD,), "tool_choice": FORCED},
            {},
        ),
        "thinking after a result": (
            {"thinks": True, "turns": AGENT.turns[:5], "max_tokens": 2000},
            {"thinking_budget": 1024},
        ),
        "max_tokens": ({"thinks": True}, {"thinking_budget": 1024}),
    }
    for beginning, (asked, configured) in refused.items():
        with pytest.raises(RefusedError, match=f"^{beginning}"):
            written(ANTHROPIC_API, settings(**configured), job(**asked))


def error(kind: str, message: str) -> bytes:
    fault = {"type": kind, "message": message}
    return json.dumps({"type": "error", "error": fault, "request_id": "r"}).encode()


TOO_LONG: Final = {
    "prompt is too long: 207791 tokens > 200000 maximum": (207791, 1, 200000),
    "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease "
    "input length or `max_tokens` and try again": (178959, 64000, 200000),
}


def test_errors_are_told_by_their_cause_with_a_status_and_as_an_event():
    for text, numbers in TOO_LONG.items():
        expected = Overflow(
            **dict(
                zip(("prompt_tokens", "answer_tokens", "n_ctx"), numbers, strict=True)
            )
        )
        body = error("invalid_request_error", text)
        assert ANTHROPIC_API.errors.of_status(400, {}, body, 0.0).overflow == expected
        assert ANTHROPIC_API.errors.of_answer(body).overflow == expected
    table = [
        (401, "authentication_error", "invalid x-api-key", "refuses the key"),
        (403, "permission_error", "not yours", "refuses the key"),
        (402, "billing_error", "pay", "quota"),
        (400, "invalid_request_error", "Your credit balance is too low", "quota"),
        (404, "not_found_error", "model: x", "no such model"),
        (429, "rate_limit_error", "slow down", "rate limit"),
        (529, "overloaded_error", "Overloaded", "failed.*: Overloaded"),
        (500, "api_error", "Internal server error", "failed.*: Internal"),
    ]
    for status, kind, text, reason in table:
        body = error(kind, text)
        for found in (
            ANTHROPIC_API.errors.of_status(status, {"retry-after": "7"}, body, 0.0),
            ANTHROPIC_API.errors.of_answer(body),
        ):
            assert not found.by_request
            with pytest.raises(RemoteError, match=reason):
                raise found
    limited = ANTHROPIC_API.errors.of_status(529, {"retry-after": "7"}, b"{]", 0.0)
    assert (limited.retry_after_ms, limited.counts) == (7000, True)


LIES: Final = {
    b"{": "not part of an answer",
    b'"hello"': "not part of an answer",
    b'{"type": 3}': "not part of an answer",
    b'{"type": "content_block_delta", "delta": {"type": "text_delta", "text": 3}}': (
        "not part of an answer"
    ),
    b"[" * 100_000: "not part of an answer",
    b"\xff": "not part of an answer",
    b'{"type": "message_stop"}': "ended in its middle",
    b'{"type": "message_delta", "delta": {"stop_reason": "weird"}}': "reason 'weird'",
    b'{"type": "message_delta", "delta": {"stop_reason": "refusal"}}': "content filter",
    b'{"type": "content_block_start", "content_block": {"type": "tool_use"}}': (
        "calls a tool, and was given none"
    ),
    b'{"type": "message_start", "message": {"model": "other"}}': "another model, 'other'",
    error("overloaded_error", "Overloaded"): "failed: Overloaded",
}


def test_what_is_no_answer_is_one_error_and_what_is_new_is_skipped():
    text = (
        b'{"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}'
    )
    for lie, reason in LIES.items():
        with pytest.raises(RemoteError, match=reason):
            read(ANTHROPIC_API, settings(expect_model="m"), [text, lie], job())
    with pytest.raises(RemoteError, match="goes on after max_tokens"):
        read(ANTHROPIC_API, settings(), [text] * 200, job())
    new = [
        b'{"type": "hologram", "index": 7}',
        b'{"type": "content_block_start", "content_block": {"type": "server_tool_use"}}',
        b'{"type": "content_block_delta", "delta": {"type": "hologram_delta"}}',
        b'{"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}',
    ]
    pieces, end = read(ANTHROPIC_API, settings(), [text, *new], job())
    assert (pieces, end.usage) == ([b"a"], Usage(3, 1, is_estimate=True))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_are_one_error(data):
    with suppress(RemoteError):
        read(ANTHROPIC_API, settings(), [data], job())


def test_settings_that_do_not_go_together():
    found = ANTHROPIC.contradiction(settings(thinking=False, thinking_budget=1024))
    assert found is not None
    assert found.key == "thinking_budget"
    assert ANTHROPIC.contradiction(settings(thinking_budget=1024)) is None
    assert ANTHROPIC_API.headers("k") == {
        "anthropic-version": "2023-06-01",
        "x-api-key": "k",
    }


def test_the_reasons_of_an_end_are_the_daemons_and_the_last_event_is_known():
    ends = dict.fromkeys(("end_turn", "stop_sequence", "tool_use"), "end")
    cut = dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "length")
    for reason, expected in {**ends, **cut}.items():
        event = {"type": "message_delta", "delta": {"stop_reason": reason}}
        _, end = read(ANTHROPIC_API, settings(), [json.dumps(event).encode()], job())
        assert end.stop_reason == expected
    assert ANTHROPIC_API.chat is not None
    reader = ANTHROPIC_API.chat.make_reader(settings(), 5, job(), 3)
    states = []
    for part in split(AnswerForm.EVENTS, THINKING):
        reader.read(part)
        states.append(reader.is_over)
    assert (states[-2:], any(states[:-1])) == ([False, True], False)
