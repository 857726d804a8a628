"""JSON Schemas that are short to send and long to work on."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from attack.asking import Question, typed

Schema = Mapping[str, Any]
BYTES: Final = 64_000
"""Just below what one schema may have."""
DEPTH: Final = 40
"""Levels of what doubles at each."""


def doubling(word: str, *, is_wide: bool = False) -> Schema:
    """Make a schema of few definitions that has 2 ** 40 ways through it."""
    definitions: dict[str, Any] = {}
    for level in range(DEPTH):
        below = {"$ref": f"#/$defs/d{level + 1}"}
        parts = [below] * (12 if is_wide else 2)
        if word == "properties":
            definitions[f"d{level}"] = objects(dict(enumerate_names(parts)))
        elif word == "prefixItems":
            definitions[f"d{level}"] = {"type": "array", "prefixItems": parts}
        else:
            definitions[f"d{level}"] = {word: parts}
    definitions[f"d{DEPTH}"] = {"type": "string"}
    return objects({"x": {"$ref": "#/$defs/d0"}}) | {"$defs": definitions}


def enumerate_names(parts: list[Any]) -> Iterator[tuple[str, Any]]:
    """Give each part a name."""
    for number, part in enumerate(parts):
        yield f"p{number}", part


def objects(properties: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Make the schema of an object whose properties are all required."""
    names = [*properties]
    return {
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": False,
        **fields,
    }


def nested(depth: int, word: str) -> Any:
    """Make a schema that is so deep."""
    inner: Any = {"type": "string"}
    for _ in range(depth):
        inner = {
            "items": {"type": "array", "items": inner},
            "properties": {"type": "object", "properties": {"a": inner}},
            "anyOf": {"anyOf": [inner]},
        }[word]
    return inner


def many(n: int) -> dict[str, Any]:
    """Make properties."""
    return {f"p{number}": {} for number in range(n)}


def small() -> dict[str, Schema]:
    """Give schemas of up to 64 kB, by name: wherever a schema may stand."""
    n = BYTES
    found: dict[str, Schema] = {
        f"{word} doubles": doubling(word)
        for word in ("anyOf", "allOf", "oneOf", "properties", "prefixItems")
    }
    found |= {
        f"{word} doubles, wide": doubling(word, is_wide=True)
        for word in ("anyOf", "properties")
    }
    found |= {
        f"deep {word}": objects({"a": nested(400, word)})
        for word in ("items", "properties", "anyOf")
    }
    strings = {
        "pattern of repetitions": {"pattern": "^(((a{90}){90}){90}){90}$"},
        "pattern of stars": {"pattern": "(" * 4000 + "a" + ")*" * 4000},
        "pattern that goes back": {"pattern": "^(a|a)*(a|aa)*b(a+)+$"},
        "long pattern": {"pattern": "(a|b)?" * (n // 7)},
        "pattern with a suffix": {"pattern": "a[a-z]{800}$"},
        "pattern of escapes": {"pattern": "\\\\" * (n // 5)},
        "length": {"minLength": 50_000, "maxLength": 60_000},
        "long const": {"const": "x" * (n - 200)},
        "const of escapes": {"const": '\\"\n' * (n // 16)},
        "deep const": {"const": deep_list(9000)},
        "enum": {"enum": [f"e{number:x}" for number in range(7000)]},
        "enum of numbers": {"enum": [*range(9000)]},
        "equal enum": {"enum": ["e"] * 12_000},
        "multipleOf": {"type": "number", "multipleOf": 1e-300},
        "large multipleOf": {"type": "integer", "multipleOf": 982_451_653},
        "multiples": {"type": "integer", "multipleOf": 7919, "minimum": 3},
        "range": {
            "type": "integer",
            "minimum": -(10**18) + 7,
            "maximum": 10**18 - 3,
        },
        "narrow range": {"type": "number", "minimum": 1e-300, "maximum": 1.1e-300},
        "items": {"type": "array", "minItems": 20_000, "maxItems": 60_000},
        "prefixes": {"type": "array", "prefixItems": [{}] * 9000},
        "many anyOf": {"anyOf": [{"type": "string", "maxLength": 3}] * 1500},
        "many allOf": {"allOf": [{"minLength": 3}] * 3000},
        "many oneOf": {"oneOf": [{"const": f"c{number}"} for number in range(2500)]},
        "crossed allOf": {
            "allOf": [{"anyOf": [{"minimum": k}, {"maximum": k}]} for k in range(700)]
        },
        "patterns of properties": {
            "type": "object",
            "patternProperties": {f"a{{{k}}}.*b": {} for k in range(900)},
        },
    }
    return (
        found
        | {name: objects({"a": each}) for name, each in strings.items()}
        | {
            "required": objects(many(2800)),
            "optional": {"type": "object", "properties": many(5000)},
            "required of none": {"type": "object", "required": [*many(5000)]},
            "equal required": {
                "type": "object",
                "properties": {"a": {}},
                "required": ["a"] * 12_000,
            },
            "a ring": objects({"a": {"$ref": "#/$defs/a"}})
            | {"$defs": {"a": {"$ref": "#/$defs/a"}}},
            "a wide ring": objects(
                {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"$ref": "#"}}
            ),
            "long references": objects({"a": {"$ref": "#/" + "$defs/" * 9000}}),
            "a chain": objects({"a": {"$ref": "#/$defs/d0"}})
            | {
                "$defs": {f"d{k}": {"$ref": f"#/$defs/d{k + 1}"} for k in range(1400)}
                | {"d1400": {}}
            },
            "texts": {"type": "object", "description": "x" * (n - 200)},
            "unknown words": {"type": "object", **{f"x{k}": {} for k in range(5000)}},
        }
    )


def large() -> dict[str, Schema]:
    """Give schemas over 64 kB, as tools may have them that are not enforced."""
    return {
        "150,000 required": objects(many(150_000)),
        "150,000 required of none": {"type": "object", "required": [*many(150_000)]},
        "100,000 alternatives": objects(
            {"a": {"anyOf": [{"type": "string"}] * 100_000}}
        ),
        "100,000 in an enum": objects(
            {"a": {"enum": [f"e{k}" for k in range(100_000)]}}
        ),
        "30,000 definitions": objects({"a": {"$ref": "#/$defs/d0"}})
        | {
            "$defs": {f"d{k}": {"$ref": f"#/$defs/d{k + 1}"} for k in range(30_000)}
            | {"d30000": {}}
        },
        "a long text": {"type": "object", "description": 'x\\\n"' * 1_000_000},
        "deep lists": {"type": "object", "x": deep_list(900)},
    }


def deep_list(depth: int) -> Any:
    """Nest lists."""
    inner: Any = []
    for _ in range(min(depth, 900)):  # json itself goes no deeper
        inner = [inner]
    return inner


def schemas() -> Iterator[Question]:
    """Ask for answers that are held to them, on v2."""
    for name, schema in small().items():
        form = {"type": "json_schema", "schema": schema}
        yield typed("x", response_format=form, max_tokens=1).named(f"schema: {name}")


def tools() -> Iterator[Question]:
    """Offer tools that have such schemas, and have them called."""
    for name, schema in small().items():
        yield _offer(f"tool, required: {name}", [_tool("f", schema)], "required")
    for name, schema in large().items():
        for choice in ("required", "auto"):
            yield _offer(f"tool, {choice}: {name}", [_tool("f", schema)], choice)
    for name, found in _repertoires().items():
        for choice in ("required", "auto"):
            yield _offer(f"{name}, {choice}", found, choice)


def _repertoires() -> dict[str, list[Any]]:
    simple = objects({"a": {"type": "string"}})
    return {
        "3,000 tools": [_tool(f"t{k}", simple) for k in range(3000)],
        "60,000 tools": [_tool(f"t{k}", {}) for k in range(60_000)],
        "100 tools that double": [
            _tool(f"t{k}", doubling("anyOf")) for k in range(100)
        ],
        "long names": [_tool(f"{k:0256}", simple) for k in range(1000)],
        "markers in names": [_tool("a<tool_call>{%" * 15, simple)],
        "long descriptions": [
            {"name": "f", "description": "<|im_end|>" * 100_000, "input_schema": simple}
        ],
    }


def _tool(name: str, schema: Schema) -> dict[str, Any]:
    return {"name": name, "description": "", "input_schema": schema}


def _offer(name: str, found: list[Any], choice: str) -> Question:
    return typed("x", tools=found, tool_choice=choice, max_tokens=0).named(name)


def size_of(schema: Schema) -> int:
    """Give the bytes of a schema as it is sent."""
    return len(json.dumps(schema, separators=(",", ":")))
