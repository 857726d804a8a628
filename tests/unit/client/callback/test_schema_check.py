"""Whether a document satisfies a schema: as the published suite and another library say."""

import json
from typing import Any

import jsonschema_rs
from hypothesis import given, settings, strategies as st

from inferd.client.callback.schema_check import matches
from tests.cases import each_case

SCHEMAS: list[Any] = [
    {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}},
    {"additionalProperties": False, "properties": {"a": True, "b": {"minimum": 1}}},
    {"additionalProperties": {"type": "string"}, "maxProperties": 1},
    {"type": ["array", "null"], "items": {"enum": [1, "a", None, True]}, "minItems": 1},
    {"prefixItems": [{"const": 1}, {"const": "a"}], "items": False},
    {"uniqueItems": True, "type": "array"},
    {"type": "string", "minLength": 1, "maxLength": 2, "pattern": "^a"},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 2, "multipleOf": 1},
    {"anyOf": [{"type": "string"}, {"const": 1}], "not": {"const": "b"}},
    {"oneOf": [{"type": "integer"}, {"minimum": 1}]},
    {"allOf": [{"type": "array"}, {"maxItems": 1}]},
    {
        "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        "$ref": "#/$defs/tree",
    },
    {"unknown-keyword": 1, "type": "boolean"},
    True,
    False,
]
LEAVES = st.sampled_from([None, True, False, 0, 1, 1.0, 2, 1.5, "", "a", "ab", "b"])
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=4,
)
VALIDATORS = [jsonschema_rs.validator_for(schema) for schema in SCHEMAS]


@settings(max_examples=60)
@given(document=DOCUMENTS)
def test_it_decides_as_another_library_does(document):
    for schema, validator in zip(SCHEMAS, VALIDATORS, strict=True):
        assert matches(document, schema) == validator.is_valid(document), schema


@each_case(
    "schema",
    [{"$ref": "#/nowhere"}, {"$ref": "https://example.org/x"}, {"type": "unknown"}],
    ids=json.dumps,
)
def test_what_is_not_known_asks_for_nothing_but_a_type_does(schema):
    assert matches(1, schema) == ("$ref" in schema)


def test_a_schema_that_never_ends_does_not_match():
    assert not matches(1, {"$ref": "#"})
