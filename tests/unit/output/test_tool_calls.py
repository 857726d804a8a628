import json

import pytest
from hypothesis import given, settings, strategies as st

from inferd.output.tool_calls import TOOL_CALL_MAX_DEPTH, read_tool_call

WORDS = st.text(max_size=3)
NAMES = WORDS.filter(bool)
LEAVES = st.none() | st.booleans() | st.integers() | WORDS
VALUES = LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(WORDS, LEAVES)
FRAGMENTS = ["{", "}", "[", "]", ":", ",", '"', "\\", '"name"', '"arguments"', "1", "e"]


def nested(depth: int, shape: str) -> str:
    """Give arguments with so many objects, or an object and arrays, inside each other."""
    begin, end = ('{"a":', "}") if shape == "objects" else ("[", "]")
    return '{"b":' + begin * (depth - 2) + "{}" + end * (depth - 2) + "}"


@settings(max_examples=30)
@given(NAMES, st.dictionaries(WORDS, VALUES, max_size=2))
def test_a_call_gives_its_name_and_arguments(name, arguments):
    for written in (arguments, json.dumps(arguments)):
        call = {"name": name, "arguments": written}
        assert read_tool_call(json.dumps(call)) == (name, arguments)


@pytest.mark.parametrize(
    "text",
    [
        '{"name":"f","parameters":{"a":1}}',
        '{"name":"f","parameters":"{\\"a\\":1}"}',
        '{"name":"f","arguments":null,"parameters":{"a":1}}',
        '\n {"arguments": {"a": 1}, "id": 3, "type": "function", "name": "f"}\t\n',
    ],
)
def test_models_write_a_call_in_several_ways(text):
    assert read_tool_call(text) == ("f", {"a": 1})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "f()",
        "[]",
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
        '{"name":"f","arguments":{"a":NaN}}',
        '{"name":"f","arguments":{"a":"\\ud800"}}',
        '{"name":"f","arguments":{"a":"\ud800"}}',
        '[{"name":"f","arguments":{}}]',
    ],
)
def test_what_is_not_plainly_a_call_is_none(text):
    assert read_tool_call(text) is None


@pytest.mark.parametrize("shape", ["objects", "arrays"])
def test_arguments_are_only_so_deep(shape):
    for depth in (TOOL_CALL_MAX_DEPTH, TOOL_CALL_MAX_DEPTH + 1):
        text = '{"name":"f","arguments":' + nested(depth, shape) + "}"
        assert (read_tool_call(text) is None) == (depth > TOOL_CALL_MAX_DEPTH)


@pytest.mark.parametrize("begin", ["[", '{"a":'])
def test_nesting_without_an_end_is_no_call(begin):
    text = begin * 100_000
    assert read_tool_call('{"name":"f","arguments":' + text) is None
    assert read_tool_call(json.dumps({"name": "f", "arguments": text})) is None


@settings(max_examples=60)
@given(st.text(max_size=9) | st.lists(st.sampled_from(FRAGMENTS)).map("".join))
def test_any_text_is_a_call_or_none(text):
    call = read_tool_call(text)
    assert call is None or isinstance(call[1], dict)
