import json

import pytest

from inferd.backend.job import ToolSpec
from inferd.dialects.calls.tagged_grammar import write_calls
from inferd.dialects.families.qwen3_coder import QWEN3_CODER
from inferd.dialects.lark import LarkBuilder
from inferd.dialects.schema.subset import UnsupportedSchemaError
from tests.cases import each_case
from tests.unit.dialects.holding import takes

BOTH = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]}


def tool(schema):
    return ToolSpec(name="f", description="", input_schema=json.dumps(schema))


def is_held_to(schema, text, **root):
    asked = tool({"properties": {"a": schema}, "required": ["a"], **root})
    argument = f"<parameter=a>\n{text}\n</parameter>\n"
    call = f"<tool_call>\n<function=f>\n{argument}</function>\n</tool_call>"
    return takes(QWEN3_CODER, [asked], call)


def test_arguments_come_in_the_order_of_the_schema_and_may_be_left_out():
    properties = {"n": {"type": "integer"}, "one": {"enum": ["x", 2]}}
    lark = LarkBuilder()
    source = lark.source(write_calls(lark, [tool({"properties": properties})]))
    call = (
        r'"<tool_call>\n" ("<function=" "f>\n" '
        r'("<parameter=" "n>\n" r0 "\n</parameter>\n")? '
        r'("<parameter=" "one>\n" ("x\n</parameter>\n" | "2\n</parameter>\n"))?) '
        r'"</function>\n</tool_call>"'
    )
    assert source.startswith(
        'start: r1 ("\\n" r1){0,127}\nr0: %json {"type": "integer", '
    )
    assert f"r1: {call}\n" in source


@each_case(
    ("schema", "fits", "fails"),
    [
        ({}, ["", "a</parameter>", "[1", "null"], ["</tool_call>", "a\n</parameter>"]),
        ({"type": "string"}, ["<parameter=b>"], ["a</parameter> <parameter=b>"]),
        ({"type": "string"}, ["a\nb"], ["a\n</parameter>\nb", "x</tool_call>"]),
        ({"type": "string", "maxLength": 3, "pattern": "^a"}, ["abc"], ["abcd", "b"]),
        ({"type": "integer", "minimum": 3}, ["3"], ["2", "x"]),
        ({"type": ["string", "null"], "maxLength": 2}, ["ab", "null"], ["abc", "true"]),
        ({"type": ["string", "number"], "maxLength": 1}, ["a", "-1.5e3"], ["ab"]),
        ({"enum": ["x", 2, None]}, ["x", "2", "null"], ["3", "xx"]),
        ({"const": [1, "a"]}, ['[1, "a"]'], ["[1]"]),
        (BOTH, ["a", "", "[1, 2]", "a["], ["[a", "[1.5]", '["a"]', " [1.5]"]),
        ({"type": ["string", "array"]}, ["a", "[1", "[1, 2]"], []),
    ],
)
def test_an_argument_is_held_to_its_schema(schema, fits, fails):
    assert [each for each in fits if not is_held_to(schema, each)] == []
    assert [each for each in fails if is_held_to(schema, each)] == []


@each_case(
    ("schema", "why"),
    [
        (
            {"type": "string", "format": "date"},
            '/properties/a: not supported: ["format"]',
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 3}]},
            '/properties/a/anyOf/1: not supported: ["minimum"]',
        ),
        (
            {"enum": ["a", "1", 1]},
            "/properties/a: the family cannot write a listed value",
        ),
        ({"const": "</tool_call>"}, "/properties/a: the family cannot write a listed"),
        ({"const": "a\n</parameter>\n"}, "/properties/a: the family cannot write"),
        ({"const": "a</parameter><parameter=b>"}, "/properties/a: the family cannot"),
    ],
)
def test_what_text_cannot_be_held_to_is_refused_by_its_place(schema, why):
    asked = tool({"properties": {"a": schema}, "required": ["a"]})
    with pytest.raises(UnsupportedSchemaError) as caught:
        write_calls(LarkBuilder(), [asked])
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize("name", ["a>", "a\nb", ""])
def test_an_argument_whose_name_cannot_be_written_is_refused(name):
    with pytest.raises(
        UnsupportedSchemaError, match=r"(?s)^/properties/.*cannot write its name"
    ):
        write_calls(LarkBuilder(), [tool({"properties": {name: {"type": "string"}}})])


def test_a_tool_of_unknown_arguments_may_have_any():
    call = "<tool_call>\n<function=f>\n{}</function>\n</tool_call>"
    argument = "<parameter=x y>\n{}\n</parameter>\n"
    for schema, values in (
        ({}, ["", "[1]"]),
        ({"additionalProperties": {"type": "integer"}}, ["1"]),
    ):
        for value in values:
            written = call.format(argument.format(value) * 2)
            assert takes(QWEN3_CODER, [tool(schema)], written)
    for closed in ('{"additionalProperties": false}', '{"properties": {}}'):
        asked = ToolSpec(name="f", description="", input_schema=closed)
        assert takes(QWEN3_CODER, [asked], call.format(""))
        assert not takes(QWEN3_CODER, [asked], call.format(argument.format("")))


@pytest.mark.parametrize("listed", [{"const": {"a": 1}}, {"enum": [{"a": 1}]}])
def test_all_arguments_at_once_cannot_be_listed(listed):
    with pytest.raises(
        UnsupportedSchemaError, match=r'^: not supported: \["(const|enum)"'
    ):
        write_calls(LarkBuilder(), [tool(listed)])


@pytest.mark.parametrize("pointer", ["#", "#/properties/b", "other"])
def test_json_refers_to_what_goes_along_with_it(pointer):
    part = {"type": "array", "items": {"$ref": pointer}}
    root = {"properties": {"a": part, "b": {"type": "integer"}}}
    with pytest.raises(
        UnsupportedSchemaError, match="^/properties/a: references may lead"
    ):
        write_calls(LarkBuilder(), [tool(root)])
    part["items"] = {"$ref": "#/$defs/b"}
    assert write_calls(
        LarkBuilder(), [tool({**root, "$defs": {"b": {"type": "integer"}}})]
    )
