import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from inferd.backend.job import ToolSpec
from inferd.dialects.lark import LarkBuilder
from inferd.dialects.schema.arguments import (
    full_arguments_schema,
    supported_arguments_schema,
)
from inferd.dialects.schema.reader import SCHEMA_MAX_DEPTH
from inferd.dialects.schema.subset import UnsupportedSchemaError
from tests.cases import each_case

TOKENS = LLTokenizer("byte")
CLOSED = {"additionalProperties": False, "type": "object"}
NODE: dict[str, Any] = {
    "type": "object",
    "properties": {"next": {"$ref": "#/$defs/node"}},
}
DEFS = {"$defs": {"node": NODE, "n": {"properties": {"n": {"const": 7}}}}}

NEEDED = {"$ref": "#/$defs/n", "required": ["n"]}


def tool(schema):
    return ToolSpec(name="f", description="", input_schema=json.dumps(schema))


def takes(schema, value):
    lark = LarkBuilder()
    source = lark.source(lark.json(full_arguments_schema(tool(schema))))
    matcher = LLMatcher(TOKENS, source, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return (
        matcher.consume_tokens([*json.dumps(value).encode()]) and matcher.is_accepting()
    )


@each_case(
    ("schema", "fits", "does_not"),
    [
        ({**DEFS, "$ref": "#/$defs/n", "required": ["n"]}, {"n": 7}, {}),
        (
            {
                "$ref": "#/properties/q",
                "properties": {
                    "q": {
                        "properties": {"a": {"$ref": "#/properties/z"}},
                        "required": ["a"],
                    },
                    "z": {"type": "string"},
                },
            },
            {"a": "5"},
            {"a": 5},
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": NEEDED, **DEFS["$defs"]}},
            {"n": 7},
            {},
        ),
        ({**DEFS, "$ref": "#/$defs/n"}, {"n": 7}, {"x": 1}),
        ({**DEFS, "$ref": "#/$defs/node"}, {"next": {"next": {}}}, {"next": 1}),
        ({"type": ["string", "object"], "required": ["a"]}, {"a": 1}, "a"),
        ({"const": {"a": 1}}, {"a": 1}, {"a": 2}),
        (True, {"a": 1}, 1),
    ],
)
def test_arguments_are_held_to_all_of_a_schema(schema, fits, does_not):
    assert takes(schema, fits)
    assert not takes(schema, does_not)


def test_references_lead_where_the_clients_do():
    inner = {"$defs": {"node": {"const": 1}}, **NODE}
    for schema in (
        {"$ref": "#/$defs/inner", "$defs": {"inner": inner, "node": {"const": 2}}},
        {"$ref": "#", "required": ["a"]},
        {"$ref": "elsewhere"},
    ):
        assert full_arguments_schema(tool(schema)) == {**schema, "type": "object"}


def nested(depth):
    schema: dict[str, object] = {"items": True}
    for _ in range(depth - 1):
        schema = {"items": schema}
    return schema


@each_case("read", [full_arguments_schema, supported_arguments_schema])
@each_case(
    ("schema", "why"),
    [
        (nested(SCHEMA_MAX_DEPTH + 1), ": over 64 levels deep"),
        (False, ": nothing can satisfy it"),
        ({"type": "array"}, ": nothing can satisfy it"),
        ({"type": ["string", "null"]}, ": nothing can satisfy it"),
        ({"type": None}, ": nothing can satisfy it"),
        (None, ": not a schema"),
        ("words", ": not a schema"),
        ([], ": not a schema"),
    ],
)
def test_what_arguments_cannot_be_held_to_is_refused(read, schema, why):
    with pytest.raises(UnsupportedSchemaError, match=f"^{why}$"):
        read(tool(schema))


def test_a_schema_may_be_so_deep():
    schema = nested(SCHEMA_MAX_DEPTH)
    assert full_arguments_schema(tool(schema)) == {**schema, "type": "object"}


def test_for_grammars_of_ours_a_reference_is_followed_to_its_place():
    schema = {"type": "object", "allOf": [{"$ref": "#/$defs/n"}], **DEFS}
    found = supported_arguments_schema(tool(schema))
    assert found[:2] == ({**DEFS["$defs"]["n"], **CLOSED}, "/$defs/n")
    assert found[2] == schema


@pytest.mark.parametrize(
    "schema",
    [
        {**DEFS, "$ref": "#/$defs/n", "required": ["n"]},
        {"anyOf": [{"required": ["a"]}]},
        {**DEFS, "$ref": "#/$defs/a", "$defs": {"a": {"type": "array"}}},
    ],
)
def test_grammars_of_ours_are_held_to_no_more_than_they_know(schema):
    with pytest.raises(UnsupportedSchemaError):
        supported_arguments_schema(tool(schema))
