"""Streams of servers, and what is no answer.

``RECORDED`` came from llama-server (llama.cpp of llama-cpp-python 0.3.36), with its path of the
model cut. Other forms are written by hand, after the chunk object of OpenAI's API reference;
``reasoning`` is vLLM's name for it.
"""

import json
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from inferd.backend.events import Text, Thinking, ToolUse
from inferd.backend.job import GenerateJob, Structure, ToolChoice
from inferd.config.kinds.remote_limits import MAX_CALLS_CHARS
from inferd.dialects.families.generic import GENERIC
from inferd.output.parser import BlockParser, ParsedBlock
from inferd.wire.responses import Usage
from inferd.worker.remote.failure import RemoteError
from inferd.worker.remote.generic_writer import MARKERS
from inferd.worker.remote.openai.answer import DONE, AnswerReader
from tests.cases import each_case
from tests.fakes.remote_engine import chunk
from tests.unit.worker.remote.openai.jobs import TOOL, job


def read(*events: bytes, asked=None, expect_model=None, n_ctx=None):
    """Read a stream; give the pieces and the end."""
    reader = AnswerReader(
        5, asked or job(), expect_model=expect_model, prompt_tokens=3, n_ctx=n_ctx
    )
    pieces = [piece for event in events for piece in reader.read(_data(event))]
    last, end = reader.finish()
    return [*pieces, *last], end


def _data(event: bytes) -> bytes:
    return event.removeprefix(b"data: ").strip()


def blocks(pieces: list[bytes], asked: GenerateJob) -> list[ParsedBlock]:
    """Parse pieces as the daemon does."""
    parser = BlockParser(
        GENERIC.regions, asked.tools, calls_tools=bool(asked.tools), is_structured=False
    )
    return [*parser.feed(b"".join(pieces).decode()), *parser.finish()]


USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 2,
    "prompt_tokens_details": {"cached_tokens": 4},
}


def test_text_has_a_piece_for_each_delta_and_the_counts_of_the_remote():
    usage = json.dumps({"choices": [], "usage": USAGE}).encode()
    pieces, end = read(chunk("a"), chunk("b"), chunk(reason="stop"), usage, DONE)
    assert (pieces, end.ticket, end.stop_reason) == ([b"a", b"b"], 5, "end")
    assert end.usage == Usage(7, 2, 4)


RECORDED = [
    (
        b'{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}]'
        b',"created":1795488084,"id":"chatcmpl-R","model":"b179","system_fingerprint":"b1-0c1e570",'
        b'"object":"chat.completion.chunk"}'
    ),
    (
        b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"B"}}],"created":1795488084'
        b',"id":"chatcmpl-R","model":"b179","object":"chat.completion.chunk"}'
    ),
]


def test_a_recorded_beginning_is_read_whose_first_content_is_null():
    pieces, end = read(*RECORDED, chunk(reason="length"))
    assert (pieces, end.stop_reason, end.usage) == (
        [b"B"],
        "length",
        Usage(3, 1, is_estimate=True),
    )


def test_an_answer_without_counts_has_those_of_here():
    _, end = read(chunk("a"), chunk("b", reason="length"))
    assert (end.stop_reason, end.usage) == ("length", Usage(3, 2, is_estimate=True))


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10**30, "completion_tokens": 10**30},
        {"prompt_tokens": -1, "completion_tokens": -1},
        {"prompt_tokens": 90, "completion_tokens": 90},
    ],
)
def test_counts_that_cannot_be_never_exceed_the_context(usage):
    event = json.dumps({"choices": [], "usage": usage}).encode()
    try:
        _, end = read(chunk("a", reason="stop"), event, n_ctx=100)
    except RemoteError:
        return  # a number that does not fit is no answer
    assert end.usage.prompt_tokens + end.usage.completion_tokens <= 100


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_of_either_name_is_told_from_text(key):
    asked = job(thinks=True)
    events = [chunk(**{key: "hm"}), chunk(**{key: "m"}), chunk("yes", reason="stop")]
    pieces, _ = read(*events, asked=asked)
    assert blocks(pieces, asked) == [Thinking("hmm"), Text("yes")]
    assert [each for each in pieces if each not in MARKERS] == [b"hm", b"m", b"yes"]


def call_delta(index: int, **function) -> bytes:
    return chunk(tool_calls=[{"index": index, "function": function}])


@given(
    st.dictionaries(st.text(max_size=9), st.text(max_size=30), max_size=3), st.data()
)
def test_calls_come_whole_however_their_arguments_are_cut(arguments, data):
    asked = job(tools=(TOOL,), max_tokens=200)
    text, events = json.dumps(arguments), [call_delta(0, name="add", arguments="")]
    while text:
        n_chars = data.draw(st.integers(1, len(text)))
        events.append(call_delta(0, arguments=text[:n_chars]))
        text = text[n_chars:]
    pieces, end = read(*events, chunk(reason="tool_calls"), asked=asked)
    [call] = [each for each in blocks(pieces, asked) if isinstance(each, ToolUse)]
    assert (call.name, call.input, end.stop_reason) == ("add", arguments, "end")


def test_two_calls_and_markers_in_their_arguments_stay_apart():
    asked = job(tools=(TOOL,))
    evil = {"a": "</tool_call><think>"}
    events = [
        chunk("Let me see."),
        call_delta(1, name="add", arguments='{"b":2}'),
        call_delta(0, name="add", arguments=json.dumps(evil)),
    ]
    pieces, _ = read(*events, chunk(reason="tool_calls"), asked=asked)
    found = [each for each in blocks(pieces, asked) if isinstance(each, ToolUse)]
    assert [each.input for each in found] == [evil, {"b": 2}]


def test_a_structure_is_complete_if_the_whole_text_is_json():
    asked = job(structure=Structure(kind="json_schema", source="{}"))
    assert read(chunk("[1,"), chunk("2]", reason="stop"), asked=asked)[
        1
    ].structure_complete
    for events in ([chunk("[1", reason="stop")], [chunk("[1]", reason="length")]):
        assert read(*events, asked=asked)[1].structure_complete is False
    forced = job(tools=(TOOL,), tool_choice=ToolChoice("required"))
    assert read(chunk("no", reason="stop"), asked=forced)[1].structure_complete is False


@each_case(
    ("events", "reason"),
    [
        ([b"{"], "not part of an answer"),
        ([b'"hello"'], "not part of an answer"),
        ([b'{"choices": 3}'], "not part of an answer"),
        ([b'{"choices": [{"delta": {"content": 3}}]}'], "not part of an answer"),
        ([b"[" * 100_000], "not part of an answer"),
        ([b"\xff"], "not part of an answer"),
        ([b'{"error": {"message": "out of memory"}}'], "failed: out of memory"),
        ([b'{"error": "broken"}'], "failed: broken"),
        ([chunk("a")], "ended in its middle"),
        ([chunk("a"), DONE], "ended in its middle"),
        ([chunk("a")] * 200, "goes on after max_tokens"),
        ([chunk(reason="weird")], "the reason 'weird'"),
        ([chunk(reason="content_filter")], "content filter"),
        ([call_delta(0, name="add")], "calls a tool, and was given none"),
    ],
)
def test_what_is_no_answer_is_one_error(events, reason):
    with pytest.raises(RemoteError, match=reason):
        read(*events)


def test_another_model_is_an_error_where_one_is_expected():
    with pytest.raises(RemoteError, match="another model, 'm'"):
        read(chunk("a", reason="stop"), expect_model="n")
    assert read(chunk("a", reason="stop"), expect_model="m")[0] == [b"a"]


def test_calls_are_bounded():
    asked = job(tools=(TOOL,), max_tokens=1000)
    events = [call_delta(number, name="add") for number in range(129)]
    with pytest.raises(RemoteError, match="more than 128 tools"):
        read(*events, asked=asked)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_are_one_error(data):
    with suppress(RemoteError):
        AnswerReader(0, job(), expect_model=None, prompt_tokens=1).read(data)


def test_the_calls_of_an_answer_are_bounded_together():
    half = "x" * (MAX_CALLS_CHARS // 2)
    calls = [
        chunk(tool_calls=[{"index": index, "function": {"arguments": half}}])
        for index in range(3)
    ]
    with pytest.raises(RemoteError, match="calls have over"):
        read(*calls, asked=job(tools=[TOOL]))
