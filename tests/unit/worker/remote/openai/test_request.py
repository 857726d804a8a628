import msgspec
import pytest

from inferd.backend.job import PastCall, Structure, ToolChoice, Turn
from inferd.limits.protocol import DEFAULT_TOP_K
from inferd.worker.backend import RefusedError
from inferd.worker.remote.openai.request import write_request
from tests.cases import each_case
from tests.daemon.connection import Frame
from tests.unit.worker.remote.openai.jobs import TOOL, job, sampling, settings


def body(job, **fields) -> Frame:
    found: Frame = msgspec.json.decode(write_request(settings(**fields), job).body)
    return found


def test_a_plain_request_has_nothing_that_was_not_asked_for():
    assert body(job()) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 9,
        "seed": 1,
    }


def test_stop_strings_stay_here():
    assert "stop" not in body(job(stops=("x",)))


def test_a_conversation_with_calls_is_written_as_the_api_has_it():
    turns = [
        Turn("user", "1+1?"),
        Turn("assistant", "", (PastCall(id="c", name="add", arguments='{"a":1}'),)),
        Turn("tool", "2", call_id="c", name="add"),
    ]
    written = body(
        job(turns=turns, tools=(TOOL,), tool_choice=ToolChoice("named", "add"))
    )
    call = {"name": "add", "arguments": '{"a":1}'}
    assert written["messages"][1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": call}],
        },
        {"role": "tool", "content": "2", "tool_call_id": "c"},
    ]
    assert written["tools"][0]["function"]["parameters"] == {"type": "object"}
    assert written["tool_choice"] == {"type": "function", "function": {"name": "add"}}


def test_a_schema_is_required_strictly():
    schema = Structure(kind="json_schema", source='{"type":"array"}')
    assert body(job(structure=schema))["response_format"]["json_schema"] == {
        "name": "answer",
        "schema": {"type": "array"},
        "strict": True,
    }


def test_parameters_that_the_server_knows_are_sent():
    asked = sampling(temperature=0.5, top_k=3, min_p=0.1, logit_bias={5: 1.0})
    written = body(job(sampling=asked), samplers=("top_k", "min_p"))
    assert (written["temperature"], written["top_k"], written["min_p"]) == (0.5, 3, 0.1)
    assert written["logit_bias"] == {"5": 1.0}


@pytest.mark.parametrize("thinks", [False, True])
def test_reasoning_is_switched_where_the_server_can(thinks):
    written = body(job(thinks=thinks), thinking=True, thinking_switch=True)
    assert written["chat_template_kwargs"] == {"enable_thinking": thinks}


@each_case(
    ("fields", "reason"),
    [
        ({"sampling": sampling(top_k=3)}, "top_k: not in the API"),
        ({"sampling": sampling(min_p=0.1)}, "min_p: not in the API"),
        ({"sampling": sampling(repeat_penalty=1.1)}, "repeat_penalty: not in the API"),
        ({"min_tokens": 1}, "min_tokens"),
        *(({"cache": "off"}, "cache"), ({"cache": "discard"}, "cache")),
        ({"stop_token_ids": (1,)}, "stop_token_ids"),
        ({"n_alternatives": 1}, "logprobs"),
        ({"prefill_only": True}, "prefill_only"),
        ({"structure": Structure(kind="regex", source="a")}, "response_format.pattern"),
    ],
)
def test_what_the_server_cannot_do_is_refused_before_it_is_asked(fields, reason):
    with pytest.raises(RefusedError, match=f"^{reason}"):
        write_request(settings(), job(**fields))


def test_the_default_of_the_protocol_asks_for_nothing():
    assert "top_k" not in body(job(sampling=sampling(top_k=DEFAULT_TOP_K)))
