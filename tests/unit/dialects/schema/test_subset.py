from typing import Any

import pytest

from inferd.dialects.schema.subset import (
    SchemaNode,
    UnsupportedSchemaError,
    alternative_nodes,
    check_supported,
    keywords_of,
    listed_values,
    object_properties,
)
from tests.cases import each_case

ROOT: dict[str, Any] = {
    "$defs": {
        "n": {"type": "integer", "minimum": 1},
        "round": {"$ref": "#/$defs/round"},
        "a/b": {"type": "null"},
    },
    "anyOf": [{"type": "boolean"}],
}


def held_to(schema):
    return check_supported(SchemaNode(schema, "/here"), ROOT)


@each_case(
    "schema",
    [
        {},
        {"type": "string", "pattern": "^a", "minLength": 1, "title": "A"},
        {"type": ["integer", "null"], "multipleOf": 3, "exclusiveMaximum": 9},
        {"type": "array", "items": {}, "maxItems": 3, "uniqueItems": False},
        {"type": "object", "required": ["a"], "additionalProperties": False},
        {"type": "string", "enum": ["a"], "default": "a"},
        {"anyOf": [{"not": {}}], "description": "a"},
        {"oneOf": [{"type": "string"}, {"type": "number"}, {"const": None}]},
        {"type": "integer", "format": "int32", "minLength": 1, "x-order": 3},
    ],
)
def test_what_can_be_held_to_is_let_through(schema):
    assert held_to(schema) == (schema, "/here")


@each_case(
    ("schema", "words"),
    [
        ({"type": "string", "format": "date"}, '"format"'),
        ({"format": "date"}, '"format"'),
        (
            {"type": "array", "contains": {}, "uniqueItems": True},
            '"contains", "uniqueItems"',
        ),
        ({"prefixItems": [{}]}, '"prefixItems"'),
        ({"type": "object", "patternProperties": {}}, '"patternProperties"'),
        ({"minProperties": 1}, '"minProperties"'),
        ({"type": "integer", "not": {"const": 1}}, '"not"'),
        ({"if": {}, "then": {}, "else": {}}, '"else", "if", "then"'),
        ({"enum": ["a"], "maxLength": 3}, '"maxLength"'),
        ({"const": 1, "enum": [1]}, '"enum"'),
        ({"anyOf": [{}], "type": "object"}, '"type"'),
        ({"allOf": [{}, {}]}, '"allOf"'),
        ({"allOf": [{}], "type": "object"}, '"allOf"'),
        ({"$ref": "#/$defs/n", "maximum": 3}, '"$ref"'),
        ({"$ref": 3}, '"$ref"'),
        ({"$dynamicRef": "#a"}, '"$dynamicRef"'),
    ],
)
def test_what_cannot_be_held_to_is_refused_where_it_stands(schema, words):
    with pytest.raises(UnsupportedSchemaError) as caught:
        held_to(schema)
    assert str(caught.value) == f"/here: not supported: [{words}]"


@each_case(
    ("schema", "error"),
    [
        (False, "/here: nothing can satisfy it"),
        ({"allOf": [False]}, "/here/allOf/0: nothing can satisfy it"),
        ({"$ref": "#/$defs/m"}, "/$defs/m: there is no such schema"),
        ({"$ref": "#n"}, "n: there is no such schema"),
        ({"$ref": "https://example.org/a"}, "https://example.org/a: there is no such"),
        ({"$ref": "#/$defs/round"}, "/$defs/round: references lead round and round"),
        (
            {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            "/here: oneOf is only supported if its schemas have different types",
        ),
    ],
)
def test_what_leads_nowhere_is_refused(schema, error):
    with pytest.raises(UnsupportedSchemaError) as caught:
        held_to(schema)
    assert str(caught.value).startswith(error)


def test_references_are_followed():
    assert held_to({"$ref": "#/$defs/n", "title": "n"}) == (
        ROOT["$defs"]["n"],
        "/$defs/n",
    )
    assert held_to({"$ref": "#/$defs/a~1b"})[0] == {"type": "null"}
    assert held_to({"$ref": "#/anyOf/0"}) == ({"type": "boolean"}, "/anyOf/0")
    assert held_to({"allOf": [{"$ref": "#/$defs/n"}]})[1] == "/$defs/n"
    assert held_to(True) == ({}, "/here")
    assert held_to("odd") == ({}, "/here")


def test_listed_values_are_those_of_the_kinds_that_are_allowed():
    listed = {"enum": ["a", 1, None]}
    assert listed_values(listed, "") == ["a", 1, None]
    assert listed_values({**listed, "type": ["string", "null"]}, "") == ["a", None]
    assert listed_values({"type": "string"}, "") is None
    with pytest.raises(UnsupportedSchemaError, match="nothing can satisfy it"):
        listed_values({**listed, "type": "boolean"}, "")


def test_choices_have_their_places():
    assert alternative_nodes({"anyOf": [{}, True]}, "/a") == [
        SchemaNode({}, "/a/anyOf/0"),
        SchemaNode(True, "/a/anyOf/1"),
    ]
    assert alternative_nodes({"oneOf": [{}]}, "") == [SchemaNode({}, "/oneOf/0")]
    assert alternative_nodes({}, "") is None


@each_case(
    ("schema", "names", "has_others"),
    [
        ({}, "", True),
        ({"additionalProperties": False}, "", False),
        ({"properties": {}}, "", False),
        ({"properties": {"a": {}, "b": False}, "required": ["a"]}, "a!", False),
        ({"properties": {"a": {}}, "required": ["b"]}, "a b!", False),
        ({"required": ["b"], "additionalProperties": {}}, "b!", True),
    ],
)
def test_an_object_has_members_and_perhaps_others(schema, names, has_others):
    found, others = object_properties(schema, "")
    shown = " ".join(each.name + "!" * each.is_required for each in found)
    assert shown == names
    assert (others is not None) is has_others


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": False}, "required": ["a"]},
        {"additionalProperties": False, "required": ["a"]},
    ],
)
def test_what_is_needed_and_cannot_be_is_refused(schema):
    with pytest.raises(UnsupportedSchemaError, match="^/a: nothing can satisfy it"):
        object_properties(schema, "/a")


def test_keywords_are_of_kinds():
    assert "pattern" in keywords_of("string")
    assert "pattern" not in keywords_of("object")
