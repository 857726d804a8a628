import json

from hypothesis import given, settings

from inferd.backend.job import ToolSpec
from inferd.dialects.schema.typescript import namespace
from tests.cases import each_case
from tests.unit.dialects.conversations import TOOLS


def described(properties, **rest):
    schema = json.dumps({"type": "object", "properties": properties, **rest})
    tool = ToolSpec(name="f", description="Do it.", input_schema=schema)
    begin = "namespace functions {\n\n// Do it.\ntype f = "
    text = namespace("functions", [tool])
    assert text.startswith(begin)
    return text.removeprefix(begin).removesuffix(" => any;\n\n} // namespace functions")


@each_case(
    ("schema", "written"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "number"),
        ({"type": "number"}, "number"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string", "nullable": True}, "string | null"),
        ({"type": ["string", "integer", "number", "null"]}, "string | number | null"),
        ({"type": "string", "enum": ["a", "b"]}, '"a" | "b"'),
        ({"const": 1}, "1"),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, "string | any[]"),
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a" | "b")[]'),
        ({"type": "object"}, "object"),
        ({"type": "object", "properties": {"b": {}}}, "{\nb?: any,\n}"),
        ({"$ref": "#/$defs/named"}, "boolean"),
        ({"allOf": [{"$ref": "#/$defs/named"}]}, "boolean"),
        ({"type": "string", "default": "x"}, 'string, // default: "x"'),
        ({"enum": ["x"], "default": "x"}, '"x", // default: x'),
        ({"type": "integer", "default": 3}, "number, // default: 3"),
        ({}, "any"),
        (True, "any"),
        ({"type": 7}, "any"),
    ],
)
def test_a_type_is_written_as_typescript_has_it(schema, written):
    defs = {"named": {"type": "boolean"}}
    assert described({"a": schema}, **{"$defs": defs}) == f"(_: {{\na?: {written},\n}})"


def test_what_is_said_of_a_reference_comes_before_what_it_says_of_itself():
    named = {"type": "boolean", "description": "Any."}
    properties = {"a": {"$ref": "#/$defs/b", "description": "Mine."}}
    text = described(properties, **{"$defs": {"b": named}})
    assert text == "(_: {\n// Mine.\na?: boolean,\n})"


def test_what_is_required_and_what_it_is_about_is_said():
    properties = {"a": {"description": "First.\nSecond."}, "b": {"description": 7}}
    assert described(properties, required=["a"]) == (
        "(_: {\n// First.\n// Second.\na: any,\nb?: any,\n})"
    )


def test_a_function_without_arguments_has_none():
    assert described({}) == "()"


def itself(n_times):
    properties = {f"a{at}": {"$ref": "#"} for at in range(n_times)}
    schema = json.dumps({"type": "object", "properties": properties})
    tool = ToolSpec(name="f", description="", input_schema=schema)
    return namespace("functions", [tool])


def test_a_type_within_itself_ends():
    assert itself(3).count("?: any") == 3


def test_a_type_that_is_referred_to_is_written_each_time():
    shared = {"properties": {"x": {"type": "string"}}, "type": "object"}
    properties = {name: {"$ref": "#/$defs/s"} for name in "ab"}
    text = described(properties, **{"$defs": {"s": shared}})
    assert text.count("{\nx?: string,\n}") == 2


def test_what_many_references_lead_to_is_written_as_far_as_there_is_room():
    shared = {"type": "object", "properties": {f"x{n}": {} for n in range(99)}}
    properties = {f"p{n}": {"$ref": "#/$defs/s"} for n in range(99)}
    text = described(properties, **{"$defs": {"s": shared}})
    assert 1 < text.count("x98?: any") < 20
    assert text.count("p98?: any") == 1


@settings(max_examples=30)
@given(TOOLS)
def test_any_schema_has_a_type(tools):
    text = namespace("functions", tools)
    assert text.count(" => any;\n\n") >= len(tools)
