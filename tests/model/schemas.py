"""Schemas such as clients send: kinds of values, alone and inside each other."""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

VALUES: dict[str, Schema] = {
    "any string": {"type": "string"},
    "short string": {"type": "string", "maxLength": 5},
    "string of a length": {"type": "string", "minLength": 3, "maxLength": 3},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"},
    "part of a string": {"type": "string", "pattern": "[0-9]+", "maxLength": 12},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "date-time": {"type": "string", "format": "date-time"},
    "duration": {"type": "string", "format": "duration"},
    "ipv4": {"type": "string", "format": "ipv4"},
    "ipv6": {"type": "string", "format": "ipv6"},
    "uuid": {"type": "string", "format": "uuid"},
    "integer": {"type": "integer"},
    "integer in bounds": {"type": "integer", "minimum": -7, "maximum": 120},
    "positive integer": {"type": "integer", "exclusiveMinimum": 0},
    "integer by steps": {"type": "integer", "multipleOf": 5, "minimum": 0},
    "number": {"type": "number", "minimum": -1000000, "maximum": 1000000},
    "number in bounds": {"type": "number", "minimum": 0.5, "exclusiveMaximum": 99.25},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "nullable": {"type": ["string", "null"], "maxLength": 8},
    "one of several texts": {"enum": ["red", "green", "bläulich", 'with "quotes"']},
    "one of several values": {"enum": [1, "one", None, True, [1], {"one": 1}]},
    "constant": {"const": {"version": 2, "tags": ["a", "b"]}},
    "either": {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 4}]},
    "both": {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 9}]},
    "one alone": {"oneOf": [{"type": "integer"}, {"type": "boolean"}]},
}
SHARED: Schema = {
    "address": {
        "type": "object",
        "properties": {
            "street": {"type": "string", "maxLength": 20},
            "number": {"type": "integer", "minimum": 1, "maximum": 999},
        },
        "required": ["street"],
        "additionalProperties": False,
    },
    "tree": {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "children": {
                "type": "array",
                "items": {"$ref": "#/$defs/tree"},
                "maxItems": 3,
            },
        },
        "required": ["value"],
        "additionalProperties": False,
    },
}


def an_object(required: bool, **properties: Schema) -> Schema:  # noqa: FBT001  # read with them
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties] if required else [],
        "additionalProperties": False,
    }


def around(value: Schema) -> Iterator[tuple[str, Schema]]:
    """Put a value's schema inside others."""
    yield "{}", value
    yield "object of {}", an_object(True, first=value, second=value)
    yield "object of perhaps {}", an_object(False, first=value, second=value)
    yield "array of {}", {"type": "array", "items": value, "maxItems": 4}
    yield (
        "array of two or three {}",
        {
            "type": "array",
            "items": value,
            "minItems": 2,
            "maxItems": 3,
        },
    )
    yield (
        "map of {}",
        {
            "type": "object",
            "additionalProperties": value,
            "maxProperties": 2,
        },
    )
    yield (
        "tuple of {}",
        {
            "type": "array",
            "prefixItems": [value, {"type": "boolean"}],
            "items": False,
            "minItems": 2,
        },
    )
    yield (
        "deep {}",
        an_object(True, outer=an_object(True, inner={"type": "array", "items": value})),
    )


def all_schemas() -> dict[str, Schema]:
    """Give over two hundred schemas by name."""
    schemas = {
        shape.format(name): schema
        for name, value in VALUES.items()
        for shape, schema in around(value)
    }
    for name in SHARED:
        referred = {"$ref": f"#/$defs/{name}"}
        for shape, schema in around(referred):
            schemas[shape.format(f"shared {name}")] = {"$defs": SHARED, **schema}
    return schemas
