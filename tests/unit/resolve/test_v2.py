from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import Raw

from inferd.backend import job as tools
from inferd.backend.job import GenerateJob, Sampling, Turn
from inferd.errors import InvalidRequestError, PeerError
from inferd.limits.protocol import MAX_BLOCK_DEPTH
from inferd.resolve.request import ResolvedRequest
from inferd.resolve.v2 import resolve_v2
from inferd.routing import (
    CONSTRAINS_OUTPUT,
    GENERATES,
    HAS_REASONING,
    KNOWS_TOKENS,
    SERVES_V2,
    TAKES_TOOLS,
)
from inferd.wire.blocks import (
    BlocksRequest,
    ImageBlock,
    Message,
    NamedTool,
    ResponseFormat,
    TextBlock,
    Tool,
    ToolResultBlock,
    ToolUseBlock,
)
from inferd.wire.codec import decode_blocks
from tests.cases import each_case
from tests.unit.strategies import BLOCKS_REQUESTS

TURN = Message("user", [TextBlock("h"), ToolResultBlock("tc-0", [TextBlock("i")])])
CALLED = Message("assistant", [ToolUseBlock("tc-0", "f", Raw(b"{}"))])
TOOL = Tool("f", "", Raw(b"{}"))
SAMPLING = Sampling(temperature=None, top_p=None, top_k=None, seed=7)


def resolve(**fields):
    turn = Message("user", [TextBlock("hi")])
    return resolve_v2(BlocksRequest(**{"messages": [turn], **fields}), seed=7)


def refusal(**fields):
    with pytest.raises(InvalidRequestError) as caught:
        resolve(**fields)
    assert caught.value.message == f"invalid request: {caught.value}"
    return str(caught.value)


def test_what_is_left_open_is_the_models_business_or_the_wires_default():
    plan = resolve()
    assert plan == ResolvedRequest(
        job=GenerateJob(turns=[Turn("user", "hi")], max_tokens=1000, sampling=SAMPLING),
        needs=(GENERATES, SERVES_V2),
    )
    assert (plan.priority, plan.deadline_ms, plan.streams) == (0, None, True)
    assert (SAMPLING.min_p, SAMPLING.repeat_penalty) == (None, 1.0)
    assert plan.job.structure is None
    assert (SAMPLING.presence_penalty, SAMPLING.frequency_penalty) == (0.0, 0.0)


NUMBERS: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.25,
    "top_k": 3,
    "min_p": 0.125,
    "repeat_penalty": 1.5,
    "presence_penalty": -1.5,
    "frequency_penalty": 2.0,
    "seed": 9,
}
OPTIONS: dict[str, Any] = {
    "logit_bias": {"5": -100.0},
    "max_tokens": 8,
    "min_tokens": 2,
    "stop": ["x"],
    "stop_token_ids": [2],
    "logprobs": 20,
    "prefill_only": True,
    "progress": True,
    "stream": False,
    "priority": -10,
    "deadline_ms": 1,
    "keep_alive_s": 0.5,
}


def test_every_option_is_passed_on():
    plan = resolve(**NUMBERS, **OPTIONS)
    assert plan.job == GenerateJob(
        turns=[Turn("user", "hi")],
        max_tokens=8,
        min_tokens=2,
        sampling=Sampling(**NUMBERS, seed_given=True, logit_bias={5: -100.0}),
        stops=("x",),
        stop_token_ids=(2,),
        n_alternatives=20,
        prefill_only=True,
        wants_progress=True,
    )
    assert (plan.priority, plan.deadline_ms, plan.streams) == (-10, 1, False)
    assert plan.keep_alive_s == 0.5


def test_a_zero_that_was_asked_for_is_no_default():
    zeros: dict[str, Any] = {"temperature": 0.0, "top_k": 0, "min_p": 0.0, "seed": 0}
    job = resolve(**zeros, max_tokens=0, presence_penalty=0.0).job
    assert job.sampling == Sampling(**zeros, seed_given=True, top_p=None)
    assert (job.max_tokens, job.min_tokens) == (0, 0)


def test_messages_come_to_turns():
    turns = [TURN, Message("assistant", [TextBlock("")])]
    plan = resolve(messages=turns)
    assert plan.job.turns == [
        Turn("user", "h"),
        Turn("tool", "i", call_id="tc-0"),
        Turn("assistant", ""),
    ]
    assert plan.needs == (GENERATES, SERVES_V2, TAKES_TOOLS)


def test_a_reasoning_trace_is_a_matter_of_the_backend():
    assert resolve(thinking=True).needs == (GENERATES, SERVES_V2, HAS_REASONING)
    assert resolve(thinking=False) == resolve()


@each_case(
    ("field", "edges"),
    [
        *(("temperature", (0, 2)), ("top_p", (0.001, 1)), ("min_p", (0, 1))),
        *(("repeat_penalty", (0.001, 2)), ("presence_penalty", (-2, 2))),
        *(("frequency_penalty", (-2, 2)), ("seed", (0, 2**32 - 2))),
        *(("logprobs", (1, 20)), ("priority", (-10, 10)), ("min_tokens", (0, 1000))),
        ("deadline_ms", (1, 2**32 - 1)),
    ],
)
def test_the_edges_of_a_range_are_inside(field, edges):
    for value in edges:
        assert isinstance(resolve(**{field: value}), ResolvedRequest)


@each_case(
    ("fields", "text"),
    [
        ({"temperature": 2.1}, "temperature 2.1 not in [0, 2]"),
        ({"temperature": -0.1}, "temperature -0.1 not in [0, 2]"),
        ({"top_p": 0.0}, "top_p 0 not in (0, 1]"),
        ({"top_p": 2.0}, "top_p 2 not in (0, 1]"),
        ({"min_p": -0.1}, "min_p -0.1 not in [0, 1]"),
        ({"min_p": 1.1}, "min_p 1.1 not in [0, 1]"),
        ({"repeat_penalty": 0.0}, "repeat_penalty 0 not in (0, 2]"),
        ({"repeat_penalty": 2.1}, "repeat_penalty 2.1 not in (0, 2]"),
        ({"presence_penalty": -2.1}, "presence_penalty -2.1 not in [-2, 2]"),
        ({"presence_penalty": 2.1}, "presence_penalty 2.1 not in [-2, 2]"),
        ({"frequency_penalty": -2.1}, "frequency_penalty -2.1 not in [-2, 2]"),
        ({"frequency_penalty": 2.1}, "frequency_penalty 2.1 not in [-2, 2]"),
        ({"seed": 2**32 - 1}, "seed 4294967295 not in [0, 4294967294]"),
        ({"logprobs": 0}, "logprobs 0 not in [1, 20]"),
        ({"logprobs": 21}, "logprobs 21 not in [1, 20]"),
        ({"priority": 11}, "priority 11 not in [-10, 10]"),
        ({"priority": -11}, "priority -11 not in [-10, 10]"),
        ({"deadline_ms": 0}, "deadline_ms 0 not in [1, 4294967295]"),
        ({"min_tokens": 4, "max_tokens": 3}, "min_tokens 4 not in [0, 3]"),
        ({"min_tokens": 1001}, "min_tokens 1001 not in [0, 1000]"),
        ({"cache": "on"}, "cache on not in [auto, off, discard]"),
        ({"cache": ""}, "cache  not in [auto, off, discard]"),
        ({"tool_choice": "any"}, "tool_choice any not in [auto, required, none]"),
        ({"logit_bias": {"5": 101.0}}, "logit_bias[5] 101 not in [-100, 100]"),
        ({"stop": [""]}, "stop[0] has 0 bytes, 1 to 256 are allowed"),
        (
            {"stop_token_ids": [1] * 65},
            "stop_token_ids has 65 entries, at most 64 are allowed",
        ),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(fields, text):
    assert refusal(**fields) == text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"response_format": ResponseFormat(type="json")},
            "response_format.type json not in [json_schema, regex, gbnf, lark]",
        ),
        (
            {"tool_choice": NamedTool("g"), "tools": [TOOL]},
            "tool_choice names no tool: g",
        ),
    ],
)
def test_what_nobody_could_enforce_is_refused(fields, text):
    assert refusal(**fields) == text


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": ResponseFormat(type="regex", pattern="a")},
        {"tool_choice": "required", "tools": [TOOL]},
        {"tool_choice": NamedTool("f"), "tools": [TOOL]},
    ],
)
def test_what_promises_a_structure_needs_a_backend_that_holds_it(fields):
    plan = resolve(**fields)
    assert plan.job.is_structured
    assert plan.needs[-1] == CONSTRAINS_OUTPUT


@pytest.mark.parametrize("choice", ["auto", None])
def test_a_choice_that_forces_nothing_is_as_good_as_none(choice):
    assert resolve(tool_choice=choice) == resolve()


@each_case(
    ("fields", "may_call"),
    [
        ({}, False),
        ({"tools": [TOOL]}, True),
        ({"tools": [TOOL], "tool_choice": "none"}, False),
        ({"messages": [CALLED, TURN]}, True),
        ({"messages": [CALLED, TURN], "tool_choice": "none"}, False),
    ],
)
def test_a_model_that_knows_of_no_calls_makes_none(fields, may_call):
    assert resolve(**fields).job.may_call == may_call


def test_tools_and_the_wish_for_a_trace_are_passed_on():
    job = resolve(tools=[TOOL], thinking=True).job
    assert job.tools == (tools.ToolSpec(name="f", description="", input_schema="{}"),)
    assert job.thinks
    assert not resolve().job.thinks


@each_case("use", ["auto", "off", "discard", None])
def test_there_are_three_uses_of_a_cache(use):
    assert resolve(cache=use).job.cache == (use or "auto")


def test_content_is_told_before_options():
    options = {"cache": "odd", "tool_choice": "odd", "temperature": 3.0, "logprobs": 0}
    assert refusal(messages=[], **options) == "messages must not be empty"
    faulty = Message("user", [ImageBlock("x")])
    assert refusal(messages=[faulty], **options) == (
        'messages[0].content[0] references unknown attachment_id "x"'
    )


@settings(max_examples=30)
@given(BLOCKS_REQUESTS)
def test_any_request_comes_to_a_plan_or_a_refusal(request_):
    try:
        outcome: object = resolve_v2(request_, seed=7)
    except PeerError as error:
        outcome = error
    assert isinstance(outcome, ResolvedRequest | PeerError)


@pytest.mark.parametrize("levels", [MAX_BLOCK_DEPTH - 1, MAX_BLOCK_DEPTH, 400, 2000])
def test_blocks_may_be_nested_so_deeply_and_no_deeper(levels):
    start, end = b'{"type":"tool_result","tool_call_id":"","content":[', b"]}"
    block = start * levels + b'{"type":"text","text":"x"}' + end * levels
    line = b'{"messages":[{"role":"user","content":[' + block + b"]}]}"
    if levels < MAX_BLOCK_DEPTH:
        plan = resolve_v2(decode_blocks(line), seed=7)
        assert plan.job.turns[0].text == "x"
    else:
        with pytest.raises(PeerError, match=r"nested over 16 deep|nested too deeply"):
            resolve_v2(decode_blocks(line), seed=7)


def test_a_prompt_of_tokens_is_passed_on_with_what_a_backend_must_be_able_to_do():
    plan = resolve_v2(
        BlocksRequest(input_tokens=[7, 0], token_ids=True), seed=1, marker="#"
    )
    assert (plan.job.input_tokens, plan.job.turns) == ([7, 0], [])
    assert plan.job.wants_token_ids
    assert plan.job.is_plain
    assert plan.needs == (GENERATES, SERVES_V2, KNOWS_TOKENS)
    assert not plan.job.may_call
