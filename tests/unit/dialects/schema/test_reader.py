import json
import re

from hypothesis import given, settings, strategies as st

from inferd.backend.job import ToolSpec
from inferd.dialects.schema.reader import (
    JSON_TYPES,
    Schema,
    allowed_types,
    alternatives,
    arguments_schema,
    bounds,
    enum_values,
    is_deeper_than,
    parse_json_strict,
    properties,
    required,
    resolve_ref,
    standalone,
    string_patterns,
    types_of,
    unwrapped,
)
from tests.cases import each_case

CLOSED = {"additionalProperties": False, "type": "object"}
WORDS = [
    *(
        "type",
        "enum",
        "const",
        "anyOf",
        "allOf",
        "$ref",
        "$defs",
        "properties",
        "required",
    ),
    *("string", "integer", "null", "#", "#/$defs/a", "#/properties/a/$ref", "a"),
]
SCHEMAS = st.recursive(
    st.sampled_from(WORDS) | st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3)
    ),
    max_leaves=8,
)
OF_STRINGS = st.dictionaries(
    st.sampled_from(["pattern", "minLength", "maxLength"]),
    SCHEMAS | st.integers(0, 9) | st.text("^a|$\\", max_size=4),
)


def tool(schema):
    return ToolSpec(name="f", description="", input_schema=json.dumps(schema))


@each_case("text", ["", "{", "NaN", "1e999", '"\\ud800"', "[" * 2000])
def test_what_is_no_json_stays_text(text):
    assert parse_json_strict(text) == text


def test_json_is_read():
    assert parse_json_strict('{"a": [1, null, "é\\n"]}') == {"a": [1, None, "é\n"]}


@each_case("schema", [True, None, "string", [], {}])
def test_arguments_are_an_object_whatever_a_client_wrote(schema):
    assert arguments_schema(tool(schema)) == {"type": "object"}


def test_a_schema_that_is_no_json_says_nothing():
    broken = ToolSpec(name="f", description="", input_schema="{")
    assert arguments_schema(broken) == {"type": "object"}


@each_case(
    ("schema", "whole"),
    [
        ({"properties": {}}, {"properties": {}, **CLOSED}),
        ({"type": "string", "properties": {}}, {"properties": {}, **CLOSED}),
        ({"allOf": [], "properties": {}}, None),
        ({"properties": {"a": {}}, "required": ["b"]}, None),
        ({"additionalProperties": True, "properties": {}}, None),
        ({"$ref": "#/$defs/a"}, None),
    ],
)
def test_arguments_that_are_not_listed_are_not_wanted_unless_it_says_so(schema, whole):
    wanted = {**(schema if whole is None else whole), "type": "object"}
    assert arguments_schema(tool(schema)) == wanted


def test_a_schema_that_is_too_deep_says_nothing():
    for depth in (64, 65):
        schema: dict[str, object] = {"items": True}
        for _ in range(depth - 1):
            schema = {"items": schema}
        is_read = arguments_schema(tool(schema)) == {**schema, "type": "object"}
        assert is_read == (depth == 64)


def test_properties_are_listed_and_some_required():
    schema = {"properties": {"a": {}, "b": True}, "required": ["b", 1, "c"]}
    assert properties(schema) == {"a": {}, "b": True}
    assert required(schema) == ["b", "c"]
    assert properties({"properties": []}) == {}
    assert required({"required": "a"}) == []


def test_a_part_takes_what_it_may_refer_to_along():
    shared: dict[str, object] = {"$defs": {"a": {}}, "definitions": {"b": {}}}
    root = {**shared, "properties": {}}
    assert standalone({"type": "array"}, root) == {"type": "array", **shared}
    assert standalone(True, root) == shared


def test_a_reference_is_followed_within_the_schema():
    deep = {"type": "null"}
    root = {"$defs": {"a/b~": deep, "c": {"$ref": "#/$defs/a~1b~0"}, "d": 1}}
    assert resolve_ref({"$ref": "#/$defs/c"}, root) == deep
    assert resolve_ref({"$ref": "#"}, root) == root
    for pointer in ("#/$defs/x", "#/$defs/d", "#/$defs/d/e", "/$defs/c", "a"):
        assert resolve_ref({"$ref": pointer}, root) == {}
    assert resolve_ref({"$ref": 1}, root) == {"$ref": 1}


def test_the_only_one_that_has_to_fit_is_as_good_as_itself():
    root = {"$defs": {"a": {"type": "null"}}}
    only = [{"$ref": "#/$defs/a"}]
    assert unwrapped({"allOf": [{"allOf": only, "title": "x"}]}) == only[0]
    assert resolve_ref({"allOf": only, "default": None}, root) == {"type": "null"}
    more: list[Schema] = [{"allOf": only * 2}, {"allOf": only, "enum": [1]}]
    for schema in [*more, {"allOf": []}]:
        assert resolve_ref(schema, root) == unwrapped(schema) == schema


def test_arguments_may_be_a_reference_to_what_lists_them():
    shared = {"$defs": {"a": {"properties": {"b": {"$ref": "#/$defs/c"}}}}}
    assert arguments_schema(tool({"$ref": "#/$defs/a", **shared})) == {
        "properties": {"b": {"$ref": "#/$defs/c"}},
        **shared,
        **CLOSED,
    }


def test_references_in_a_circle_lead_nowhere():
    root = {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}
    }
    assert resolve_ref({"$ref": "#/$defs/a"}, root) == {}


@each_case(
    ("schema", "allowed"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null", "x", 1]}, {"string", "null"}),
        ({"enum": ["a", 1]}, {"string", "integer", "number"}),
        ({"const": None, "type": "string"}, {"null"}),
        ({"anyOf": [{"type": "array"}, {"$ref": "#/$defs/a"}]}, {"array", "object"}),
        ({"oneOf": [{"type": "null"}, {}]}, JSON_TYPES),
        ({"enum": [], "anyOf": [], "type": "boolean"}, {"boolean"}),
        ({"type": {}}, JSON_TYPES),
        ({"type": "any"}, JSON_TYPES),
        (True, JSON_TYPES),
        (None, JSON_TYPES),
    ],
)
def test_a_schema_tells_of_which_kinds_a_value_may_be(schema, allowed):
    assert allowed_types(schema, {"$defs": {"a": {"type": "object"}}}) == allowed


def test_alternatives_that_hold_themselves_are_looked_at_once():
    itself = [{"$ref": "#/$defs/a"}] * 99
    root = {"$defs": {"a": {"anyOf": itself}, "b": {"anyOf": [*itself, {"const": 1}]}}}
    assert allowed_types({"$ref": "#/$defs/a"}, root) == JSON_TYPES
    root["$defs"]["a"] = root["$defs"]["b"]
    assert allowed_types({"$ref": "#/$defs/a"}, root) == {"integer", "number"}


@each_case(
    ("value", "found"),
    [
        (None, {"null"}),
        (False, {"boolean"}),
        (0, {"integer", "number"}),
        (0.0, {"number"}),
        ("", {"string"}),
        ([], {"array"}),
        ({}, {"object"}),
    ],
)
def test_each_value_is_of_a_kind(value, found):
    assert types_of(value) == found


def test_what_may_fit_is_listed():
    assert (
        alternatives({"oneOf": [1]})
        == alternatives({"anyOf": [1], "oneOf": [2]})
        == [1]
    )
    assert alternatives({"anyOf": []}) is alternatives({"anyOf": {}}) is None
    assert enum_values({"enum": [1]}) == enum_values({"const": 1, "enum": [2]}) == [1]
    assert enum_values({"const": None}) == [None]
    assert enum_values({"enum": []}) is enum_values({}) is None


@each_case(
    ("schema", "fits", "fails"),
    [
        ({}, ["", "a\nb"], []),
        ({"minLength": 2}, ["ab", "a\n" * 9], ["a"]),
        ({"maxLength": 2}, ["", "\n\n"], ["abc"]),
        ({"minLength": 1, "maxLength": 2}, ["a", "ab"], ["", "abc"]),
        ({"minLength": True, "maxLength": "1"}, ["", "abc"], []),
        ({"pattern": "^[ab]+$", "minLength": 2}, ["ab"], ["a", "abc", "cab"]),
        ({"pattern": "a|b"}, ["xay", "b\n"], ["xy"]),
        ({"pattern": "^a"}, ["ab"], ["ba"]),
        ({"pattern": "a$"}, ["ba"], ["ab"]),
        ({"pattern": r"^\^a\$"}, ["^a$", "^a$b"], ["a", "^a"]),
        ({"pattern": "a\\\\$"}, ["ba\\"], ["a\\b"]),
        ({"pattern": ""}, ["", "a"], []),
        ({"pattern": 1}, ["a"], []),
        ({"maxLength": 0}, [""], ["a"]),
    ],
)
def test_a_string_is_held_to_its_pattern_or_its_length(schema, fits, fails):
    likes = string_patterns(schema)
    assert all(re.fullmatch(like, text) for text in fits for like in likes)
    assert all(not all(re.fullmatch(like, text) for like in likes) for text in fails)


def test_bounds_that_are_no_counts_are_none():
    assert bounds({"a": 2, "b": 3}, "a", "b") == (2, 3)
    assert bounds({"a": -1, "b": 1.5}, "a", "b") == (0, "")


@settings(max_examples=30)
@given(SCHEMAS | OF_STRINGS, SCHEMAS)
def test_no_schema_is_too_odd(schema, root):
    root = root if isinstance(root, dict) else {}
    assert allowed_types(schema, root) <= JSON_TYPES
    assert isinstance(resolve_ref(schema, root), dict)
    assert all(
        isinstance(like, str) for like in string_patterns(resolve_ref(schema, root))
    )
    assert arguments_schema(tool(schema))["type"] == "object"


def test_depth_counts_objects_and_arrays():
    assert [is_deeper_than([{"a": [1]}], n_levels) for n_levels in (1, 2, 3)] == [
        True,
        True,
        False,
    ]
    assert not is_deeper_than(1, 0)
