import json

import pytest
from hypothesis import given, settings, strategies as st

from inferd.backend.job import ToolSpec
from inferd.dialects.calls.json_syntax import (
    TOOL_CALL_MAX_DEPTH,
    make_call,
    read_call,
    read_call_array,
    read_calls,
    read_cut_calls,
    write_any_call,
    write_call,
)
from inferd.dialects.dialect import ParsedCall
from inferd.dialects.lark import LarkBuilder
from tests.cases import each_case

WORDS = st.text(max_size=3)
NAMES = WORDS.filter(bool)
LEAVES = st.none() | st.booleans() | st.integers() | WORDS
VALUES = LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(WORDS, LEAVES)
CALLS = st.builds(ParsedCall, NAMES, st.dictionaries(WORDS, VALUES, max_size=2))
FRAGMENTS = ["{", "}", "[", "]", ":", ",", '"', "\\", '"name"', '"arguments"', "1", "e"]
SPACE = st.text(" \t\r\n", max_size=2)

F = '{"name":"f","arguments":{"a":1}}'
NEITHER = ["", " \n", "f()", "1", "null", '"f"']
NO_CALLS = [
    *NEITHER,
    '{"arguments":{}}',
    '{"name":"","arguments":{}}',
    '{"name":1,"arguments":{}}',
    '{"name":"f"}',
    '{"name":"f","arguments":null}',
    '{"name":"f","arguments":[]}',
    '{"name":"f","arguments":"[]"}',
    '{"name":"f","arguments":"a"}',
    '{"name":"f","arguments":""}',
    '{"name":"f","arguments":{},"parameters":{}}',
    '{"name":"f","arguments":{}',
    '{"name":"f","arguments":{}} and more',
    '{"name":"f","name":"g","arguments":{}}',
    '{"name":"f","arguments":{},"arguments":{}}',
    '{"name":"f","arguments":{"a":1,"\\u0061":1}}',
    '{"name":"f","arguments":{"a":[{"b":1,"b":1}]}}',
    '{"name":"f","arguments":"{\\"a\\":1,\\"a\\":1}"}',
    '{"name":"f","arguments":{"a":NaN}}',
    '{"name":"f","arguments":{"a":"\\ud800"}}',
    '{"name":"f","arguments":{"a":"\ud800"}}',
]


def nested(depth, shape):
    begin, end = ('{"a":', "}") if shape == "objects" else ("[", "]")
    return '{"b":' + begin * (depth - 2) + "{}" + end * (depth - 2) + "}"


def written(call):
    return json.dumps({"name": call.name, "arguments": call.arguments})


@settings(max_examples=30)
@given(CALLS)
def test_a_call_gives_its_name_and_arguments(call):
    for arguments in (call.arguments, json.dumps(call.arguments)):
        text = json.dumps({"name": call.name, "arguments": arguments})
        assert read_call(text) == call
        assert read_calls(text) == (call,)


@settings(max_examples=50)
@given(
    st.lists(CALLS, max_size=3),
    CALLS,
    st.sampled_from([("[", ", "), ("", "; "), ("", "\n")]),
    st.data(),
)
def test_calls_before_a_cut_one_are_read_and_the_rest_is_returned(
    calls, last, form, data
):
    begin, between = form
    cut = written(last)[: data.draw(st.integers(0, len(written(last)) - 1))]
    text = begin + between.join([*map(written, calls), cut])
    assert read_cut_calls(text) == (calls, cut)


@each_case("wrong", [each for each in NO_CALLS if "and more" not in each])
def test_what_is_not_a_call_ends_the_calls_before_a_cut(wrong):
    text = f"{F}; {wrong}; {F[:-1]}".rstrip()
    [call], rest = read_cut_calls(text)
    assert call == ParsedCall("f", {"a": 1})
    assert text.endswith(rest)
    assert wrong.strip() in rest


@each_case(
    "text",
    [
        '{"name":"f","parameters":{"a":1}}',
        '{"name":"f","parameters":"{\\"a\\":1}"}',
        '{"name":"f","arguments":null,"parameters":{"a":1}}',
        '\n {"arguments": {"a": 1}, "id": 3, "type": "function", "name": "f"}\t\n',
    ],
)
def test_models_write_a_call_in_several_ways(text):
    assert read_call(text) == ParsedCall("f", {"a": 1})


@each_case("text", [*NO_CALLS, "[]", f"[{F}]", F + F])
def test_what_is_not_plainly_one_call_is_none(text):
    assert read_call(text) is None


@each_case("text", [*NO_CALLS, f"{F},{F}", f"{F} f()", f"{F}[{F}]", f"{F} 1"])
def test_what_is_not_plainly_calls_is_none(text):
    assert read_calls(text) is None


@each_case("text", [*NEITHER, F, f"[{F}", f"[{F},]", f"[{F}]x", "[1]"])
def test_what_is_not_plainly_an_array_of_calls_is_none(text):
    assert read_call_array(text) is None


@settings(max_examples=30)
@given(st.lists(CALLS, min_size=1, max_size=3), SPACE)
def test_several_calls_stand_in_an_array_or_one_after_another(calls, space):
    texts = [written(call) for call in calls]
    array = f"{space}[{','.join(texts)}]{space}"
    assert read_call_array(array) == read_calls(array) == tuple(calls)
    assert read_calls(space + space.join(texts) + space) == tuple(calls)


def test_an_empty_array_is_no_calls_but_plain():
    assert read_call_array("[]") == read_calls("\n[ ]") == ()


@pytest.mark.parametrize("shape", ["objects", "arrays"])
def test_arguments_are_only_so_deep(shape):
    for depth in (TOOL_CALL_MAX_DEPTH, TOOL_CALL_MAX_DEPTH + 1):
        text = '{"name":"f","arguments":' + nested(depth, shape) + "}"
        assert (read_calls(text) is None) == (depth > TOOL_CALL_MAX_DEPTH)


@pytest.mark.parametrize("begin", ["[", '{"a":'])
def test_nesting_without_an_end_is_no_call(begin):
    text = begin * 100_000
    for each in (text, '{"name":"f","arguments":' + text):
        assert read_call(each) is None
        assert read_calls(each) is None
    assert read_call(json.dumps({"name": "f", "arguments": text})) is None


@settings(max_examples=60)
@given(st.text(max_size=9) | st.lists(st.sampled_from(FRAGMENTS)).map("".join))
def test_any_text_is_calls_or_none(text):
    calls = read_calls(text)
    assert calls is None or all(isinstance(call, ParsedCall) for call in calls)


def test_a_call_has_a_name():
    assert make_call("f", {}) == ParsedCall("f", {})
    with pytest.raises(ValueError, match="not plainly a call"):
        make_call("", {})


def test_a_written_call_has_its_name_and_arguments_of_its_schema():
    tool = ToolSpec(
        name='a"é', description="", input_schema='{"properties": {"x": {}}}'
    )
    lark = LarkBuilder()
    expression = write_call(lark, tool, "parameters")
    assert expression == (
        r'"{" "\"name\"" ": " "\"a\\\"é\"" ", " "\"parameters\"" ": " r0 "}"'
    )
    source = lark.source(expression)
    assert '"properties": {"x": {}}, "additionalProperties": false' in source
    assert '"type": "object"' in source


def test_any_of_several_calls_may_be_written():
    tools = [ToolSpec(name=name, description="", input_schema="{}") for name in "fg"]
    first, second = (
        rf'"{{" "\"name\"" ": " "\"{name}\"" ", " "\"arguments\"" ": "' for name in "fg"
    )
    written_calls = write_any_call(LarkBuilder(), tools)
    assert written_calls == f'({first} r0 "}}" | {second} r1 "}}")'
