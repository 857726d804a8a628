import json
import re

import pytest

from inferd.backend.job import ToolSpec
from inferd.dialects.calls.gemma4_grammar import write_calls
from inferd.dialects.families.gemma4 import GEMMA4
from inferd.dialects.lark import LarkBuilder
from inferd.dialects.schema.subset import UnsupportedSchemaError
from tests.cases import each_case
from tests.unit.dialects.holding import takes

QUOTE = r'"<|\"|>"'
UNTIL_QUOTE = r'r1[suffix="<|\"|>"]: T0'
STYLE = re.compile(r', "x-guidance": \{.*?\}')
ITSELF = {"$ref": "#/$defs/t"}


def source(schema, tokens=None):
    """Give the grammar of one tool, without the style of JSON."""
    tool = ToolSpec(name="f", description="", input_schema=json.dumps(schema))
    lark = LarkBuilder(tokens)
    return STYLE.sub("", lark.source(write_calls(lark, [tool])))


def lines(schema, **root):
    """Give the rules of a tool that needs one argument, up to that argument's own."""
    whole = source({"properties": {"a": schema}, "required": ["a"], **root})
    text = whole.partition("\n")[2].replace('"a:" ', "a = ")
    return text[: text.index("\n", text.index("a = "))].splitlines()


def test_arguments_follow_their_order_and_may_be_left_out_unless_they_are_required():
    properties = {"b": {"const": None}, "A": {"const": 1}, "c": {"const": True}}
    assert source({"properties": properties, "required": ["b"]}).splitlines() == [
        "start: r9{1,128}",
        'r0: "c:" ("true")',
        'r1: (r0 "" | "")',
        'r2: ("," r0 "" | "")',
        'r3: "b:" ("null")',
        "r4: r3 r2",
        'r5: "," r3 r2',
        'r6: "A:" ("1")',
        "r7: (r6 r5 | r4)",
        'r8: ("," r6 r5 | r5)',
        'r9: "<|tool_call>call:" ("f" "{" r7 "}") "<tool_call|>"',
    ]


def test_markers_and_quotes_may_be_special_tokens():
    tokens = {"<|tool_call>": 48, "<tool_call|>": 49, '<|"|>': 52}
    schema = {"properties": {"a b": {"type": "string"}, "x:y": {"const": "é"}}}
    text = source({**schema, "required": ["a b", "x:y"]}, tokens)
    assert '<[48]> "call:" ("f" "{" ' in text
    assert r'T3: /(?:(?s:.*))/ & ~/(?s:.*)(?:<\|"\|>)(?s:.*)/' in text
    assert '"a b:" (<[52]> T3 <[52]>)' in text
    assert '<[52]> "x:y" <[52]> ":" (<[52]> "é" <[52]>)' in text


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, True])
def test_a_tool_of_unknown_arguments_may_have_any(schema):
    text = source(schema)
    assert re.search(r'"\{" \((r\d+) \("," \1\)\*\)\? "\}"\) "<tool_call', text)


def test_a_tool_without_arguments_has_none():
    assert '("f" "{" "" "}")' in source({"properties": {}})


@each_case(
    ("schema", "rules"),
    [
        (
            {"type": "string"},
            ["T0: /(?:(?s:.*))/", UNTIL_QUOTE, f"r2: a = ({QUOTE} r1)"],
        ),
        (
            {"type": "string", "pattern": "^[a/]$"},
            [r"T0: /(?:(?:[a\/]))/", UNTIL_QUOTE, f"r2: a = ({QUOTE} r1)"],
        ),
        (
            {"type": "integer", "minimum": 2, "title": "n"},
            ['r0: %json {"minimum": 2, "type": "integer"}', "r1: a = (r0)"],
        ),
        (
            {"type": ["null", "boolean"]},
            [
                'r0: %json {"type": "boolean"}',
                'r1: %json {"type": "null"}',
                "r2: a = (r0 | r1)",
            ],
        ),
        ({"enum": ["x", 2]}, [r'r0: a = ("<|\"|>" "x<|\"|>" | "2")']),
        (
            {"anyOf": [{"const": 1}, {"enum": [2, 3]}]},
            ['r0: a = (("1") | ("2" | "3"))'],
        ),
        (
            {"type": "array", "items": {"const": 1}},
            ['r0: ("1")', 'r1: a = ("[" (r0 ("," r0){0,})? "]")'],
        ),
        (
            {"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 4},
            ['r0: ("1")', 'r1: a = ("[" r0 ("," r0){1,3} "]")'],
        ),
        (
            {"type": "array", "items": {"const": 1}, "maxItems": 0},
            ['r0: a = ("[]")'],
        ),
        (
            {"type": "object", "properties": {"b": {"const": 1}}, "required": ["b"]},
            [
                'r0: "b:" ("1")',
                'r1: r0 ""',
                'r2: "," r0 ""',
                'r3: a = ("{" r1 "}")',
            ],
        ),
    ],
)
def test_a_value_is_held_to_its_schema(schema, rules):
    assert lines(schema) == rules


@pytest.mark.parametrize("itself", [ITSELF, {"allOf": [ITSELF], "default": {}}])
def test_a_schema_may_refer_to_itself(itself):
    tree = {"type": "object", "properties": {"next": itself}}
    assert lines(itself, **{"$defs": {"t": tree}}) == [
        'r0: ("{" r2 "}")',
        'r1: "next:" r0',
        'r2: (r1 "" | "")',
        'r3: ("," r1 "" | "")',
        "r4: a = r0",
    ]


def test_a_value_that_nothing_is_said_of_may_be_anything_and_is_written_once():
    text = source({"properties": {"a": {}, "b": True, "c": {"title": "c"}}})
    kinds = ["boolean", "null", "number"]
    assert [text.count(f'"type": "{kind}"') for kind in kinds] == [1, 1, 1]
    assert re.search(r'(r\d+): \("\[" \((r\d+) .*\2: \1\n', text, re.DOTALL)


@each_case(
    ("schema", "error"),
    [
        ({"type": "string", "format": "date"}, 'not supported: ["format"]'),
        ({"items": {}, "contains": {}}, 'not supported: ["contains"]'),
        ({"type": "array", "minItems": 2, "maxItems": 1}, "nothing can satisfy it"),
        ({"const": '<|"|>'}, "the family cannot write a listed value"),
        ({"const": {"a:b": 1}}, "the family cannot write a listed value"),
    ],
)
def test_what_cannot_be_held_to_is_refused_by_its_place(schema, error):
    with pytest.raises(UnsupportedSchemaError) as caught:
        source({"properties": {"a": schema}})
    assert str(caught.value) == f"/properties/a: {error}"
    with pytest.raises(
        UnsupportedSchemaError, match="^/properties/<.*cannot write its name"
    ):
        source({"properties": {'<|"|>': {}}})


def is_held_to(schema, text):
    tool = ToolSpec(name="f", description="", input_schema=json.dumps(schema))
    return takes(GEMMA4, [tool], f"<|tool_call>call:f{text}<tool_call|>")


@each_case(
    ("schema", "fits", "fails"),
    [
        (
            {"additionalProperties": {"type": "null"}},
            ["{}", "{a:null,b c:null}"],
            ["{a:1}"],
        ),
        ({"additionalProperties": False}, ["{}"], ["{a:1}"]),
        ({"properties": {"a": {"items": False}}}, ["{a:[]}"], ["{a:[1]}"]),
        ({"properties": {"a": {"minimum": 3}}}, ["{a:3}", "{a:null}"], ["{a:2}"]),
        (
            {"required": ["b"], "properties": {"a": False}},
            ["{b:[]}"],
            ["{}", "{a:1,b:1}"],
        ),
        (
            {"properties": {"a": {"minLength": 2, "pattern": "b$", "type": "string"}}},
            ['{a:<|"|>ab<|"|>}'],
            ['{a:<|"|>b<|"|>}', '{a:<|"|>ba<|"|>}'],
        ),
    ],
)
def test_arguments_are_held_to_their_schema(schema, fits, fails):
    assert [each for each in fits if not is_held_to(schema, each)] == []
    assert [each for each in fails if is_held_to(schema, each)] == []


def test_all_arguments_at_once_may_be_listed():
    schema = {"type": "object", "enum": [{"a": 1}, {"b": "x"}, 3]}
    assert r'("f" ("{a:1}" | "{b:<|\"|>" "x<|\"|>" "}"))' in source(schema)
