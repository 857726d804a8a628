import json

import pytest
from hypothesis import given, settings, strategies as st

from inferd.dialects.calls.gemma4_syntax import QUOTE, format_value, read_call
from inferd.dialects.calls.json_syntax import TOOL_CALL_MAX_DEPTH
from inferd.dialects.dialect import ParsedCall
from tests.cases import each_case

KEYS = st.text("aBé_-. 1", min_size=1, max_size=3).filter(str.strip).map(str.lstrip)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2)
    ),
    max_leaves=6,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)
FRAGMENTS = ["call:f", "{", "}", "[", "]", ",", "a:", QUOTE, "1", "null", " ", "-", "."]


@settings(max_examples=40)
@given(OBJECTS)
def test_a_call_is_read_as_it_is_written(arguments):
    assert read_call(f"call:f{format_value(arguments)}") == [ParsedCall("f", arguments)]
    quoted = format_value(arguments, quotes_keys=True)
    assert read_call(f"call:f{quoted}") == [ParsedCall("f", arguments)]


def test_a_value_is_written_with_keys_in_order_and_strings_between_tokens():
    value = {"b": [1, 2.5, None], "C": {"x y": 'a"}\n'}, "a": True}
    assert (
        format_value(value)
        == f'{{a:true,b:[1,2.5,null],C:{{x y:{QUOTE}a"}}\n{QUOTE}}}}}'
    )
    assert format_value({"a": 1}, quotes_keys=True) == f"{{{QUOTE}a{QUOTE}:1}}"


@each_case(
    ("text", "arguments"),
    [
        ("call:f{}", {}),
        ("\n call:f{ } \n", {}),
        ("call:f{a:1}", {"a": 1}),
        ("call:f{ a : [ 1 , -2.5e3 ] , b:{ } }", {"a ": [1, -2500.0], "b": {}}),
        (f"call:f{{a:{QUOTE}{QUOTE},b:{QUOTE}}},{{{QUOTE}}}", {"a": "", "b": "},{"}),
        (f"call:f{{{QUOTE}a:{QUOTE}:null}}", {"a:": None}),
    ],
)
def test_white_space_stands_anywhere_but_in_a_string(text, arguments):
    assert read_call(text) == [ParsedCall("f", arguments)]


@each_case(
    "text",
    [
        "",
        "f{}",
        "call:f",
        "call:{}",
        "call: f{}",
        "call:f{}}",
        "call:f{} call:g{}",
        "call:f{",
        "call:f{a}",
        "call:f{a:}",
        "call:f{:1}",
        "call:f{a:1,}",
        "call:f{a:1 b:2}",
        "call:f{a:[1,]}",
        "call:f{a:[1}",
        "call:f{a:word}",
        'call:f{a:"word"}',
        f"call:f{{a:{QUOTE}word}}",
        "call:f{a:01}",
        "call:f{a:1.}",
        "call:f{a:True}",
        "call:f{a:NaN}",
        "call:f{a:1e999}",
        "call:f{a:1,b:2,a:3}",
        "call:f{a:{b:1,b:1}}",
        f"call:f{{a:1,{QUOTE}a{QUOTE}:1}}",
        f"call:f{{{QUOTE}a{QUOTE},{QUOTE}b{QUOTE}:1}}",
        "call:f[]",
        '{"name": "f", "arguments": {}}',
    ],
)
def test_what_is_not_plainly_a_call_is_none(text):
    assert read_call(text) is None


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ("{a:", "}")])
def test_arguments_are_only_so_deep(begin, end):
    for depth in (TOOL_CALL_MAX_DEPTH, TOOL_CALL_MAX_DEPTH + 1):
        inner = begin * (depth - 1) + "1" + end * (depth - 1)
        is_read = read_call(f"call:f{{a:{inner}}}") is not None
        assert is_read == (depth == TOOL_CALL_MAX_DEPTH)
    assert read_call("call:f{a:" + begin * 100_000) is None


def test_a_value_that_is_too_deep_is_written_as_json():
    deep: list[object] = []
    for _ in range(900):
        deep = [deep]
    assert format_value(deep) in (json.dumps(deep), "[" * 901 + "]" * 901)


@settings(max_examples=40)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join))
def test_any_text_is_a_call_or_none(text):
    calls = read_call("call:f{" + text)
    assert calls is None or isinstance(calls[0], ParsedCall)
