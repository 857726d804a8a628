import json
from collections import Counter
from itertools import cycle
from typing import Any, Final

import jsonschema_rs
import pytest

from inferd.backend.job import Sampling, Structure
from inferd.worker.backend import RefusedError
from tests.model.schemas import VALUES, all_schemas, around
from tests.unit.worker.llama.running import answer, job, load
from tools.schema_suite import suite_directory

pytestmark = pytest.mark.model

SCHEMAS = all_schemas()
UNSUPPORTED = {
    "$dynamicAnchor",
    "$dynamicRef",
    "contains",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
}
N_WRITTEN = 160
"""Schemas of the published suite that answers are held to, at least."""
LENIENT: Final = {b":60": b":06", b"-02-29": b"-02-28"}
"""A leap second in any minute, a leap day in any year: grammars know no calendar."""


def faults(schema, text):
    for odd, usual in LENIENT.items():
        text = text.replace(odd, usual)
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    return [error.message for error in validator.iter_errors(json.loads(text))]


def test_there_are_two_hundred_schemas_and_more():
    assert len(SCHEMAS) > 200
    assert len({json.dumps(each) for each in SCHEMAS.values()}) == len(SCHEMAS)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_whatever_is_allowed_satisfies_the_schema(walker, number):
    for name in [*SCHEMAS][number::8]:
        constraint = walker.compile("json_schema", json.dumps(SCHEMAS[name]))
        text = walker.write(constraint, seed=number, jumps=number % 2 == 0)
        assert constraint.is_complete, (name, text)
        assert faults(SCHEMAS[name], text) == [], (name, text)


@pytest.mark.parametrize("name", VALUES)
def test_white_space_is_as_models_write_it(walker, name):
    [*_, (_, deep)] = around(VALUES[name])
    constraint = walker.compile("json_schema", json.dumps(deep))
    text = walker.write(constraint, seed=1).decode()
    plain = json.dumps(json.loads(text), ensure_ascii=False)
    assert text.count("\n") == 0
    assert text.startswith(plain[: plain.index("[") + 1])


# --- schemas that others wrote ----------------------------------------------------------


def published():
    """Give the schemas of the published suite, each once, with where they stand."""
    found: dict[str, tuple[str, Any]] = {}
    tests = suite_directory() / "tests" / "draft2020-12"
    for path in sorted([*tests.glob("*.json"), *tests.glob("optional/format/*.json")]):
        for case in json.loads(path.read_text()):
            where = f"{path.stem}: {case['description']}"
            found.setdefault(json.dumps(case["schema"]), (where, case["schema"]))
    return found.values()


@pytest.mark.long
@pytest.mark.slow
def test_what_the_published_suite_asks_for_is_written_or_refused_by_name(walker):
    outcomes: Counter[str] = Counter()
    unnamed: list[str] = []
    for where, schema in published():
        try:
            constraint = walker.compile("json_schema", json.dumps(schema))
        except RefusedError as refusal:
            outcomes["refused"] += 1
            unnamed += [where] * (not str(refusal).startswith("response_format.schema"))
            continue
        text = walker.write(constraint, seed=len(outcomes))
        if constraint.is_complete:
            assert faults(schema, text) == [], (where, text)
        outcomes["complete" if constraint.is_complete else "cut"] += 1
    assert unnamed == []
    assert outcomes["complete"] >= N_WRITTEN
    assert outcomes["cut"] <= 2


@pytest.mark.parametrize("keyword", sorted(UNSUPPORTED))
def test_a_keyword_that_cannot_be_honoured_is_refused_by_name_and_place(
    walker, keyword
):
    schema = {"properties": {"a": {"type": "array", "items": {keyword: {}}}}}
    with pytest.raises(RefusedError) as refusal:
        walker.compile("json_schema", json.dumps(schema))
    assert str(refusal.value) == (
        f'response_format.schema/properties/a/items: not supported: ["{keyword}"]'
    )


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"format": "color", "type": "string"}, "Unknown format: color"),
        ({"$ref": "https://example.org/x"}, "'https://example.org/x' is not present"),
        ({"$ref": "#/$defs/x"}, "Pointer '/$defs/x' does not exist"),
        ({"type": "string", "pattern": "a(?=b)"}, "look-around"),
        ({"type": "string", "pattern": "("}, "unclosed group"),
        ({"oneOf": [{"type": "string"}, {"maxLength": 3}]}, "oneOf is only supported"),
        ({"type": "strin"}, "Invalid type: strin"),
        ({"enum": []}, "anyOf is empty"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "Unsatisfiable"),
        (False, "schema is false"),
        ({"$ref": "#"}, "nothing can satisfy it"),
        ({"const": "\ud800"}, "hex escape"),
        (
            {"const": 9007199254740993},
            "schema/const: 9007199254740993 is not supported",
        ),
        ({"enum": [1, 1234567890123456789]}, "schema/enum/1: 1234567890123456789 is"),
        ({"const": 123456789.123456789}, "schema/const: 123456789.12345679 is not"),
        ({"minimum": -9223372036854775807}, "schema/minimum: -9223372036854775807 is"),
        ({"items": {"const": -9223372036854775807}}, "schema/items/const: -92233720"),
        ({"x-guidance": {"lenient": True}, "not": {}}, 'not supported: ["not"]'),
    ],
    ids=str,
)
def test_a_schema_that_cannot_be_held_to_is_refused_with_a_clear_word(
    walker, schema, said
):
    with pytest.raises(RefusedError, match=r"^response_format\.schema") as refusal:
        walker.compile("json_schema", json.dumps(schema))
    assert said in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"x-note": 1, "deprecated": True, "title": "t", "type": "null"},
        {"x-guidance": {"whitespace_flexible": True}, "const": [1, 2]},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "null"},
    ],
    ids=str,
)
def test_what_says_nothing_about_values_is_passed_over(walker, schema):
    constraint = walker.compile("json_schema", json.dumps(schema))
    text = walker.write(constraint, seed=0)
    assert constraint.is_complete
    assert faults(schema, text) == []
    assert text in (b"[1, 2]", b"null") or schema is True


# --- the model itself -------------------------------------------------------------------

WANTED = (
    "constant",
    "object of short string",
    "object of perhaps boolean",
    "array of two or three one of several texts",
    "tuple of date",
    "object of uuid",
    "array of integer in bounds",
    "object of boolean",
    "array of nullable",
    "object of either",
    "shared address",
    "object of pattern",
)


@pytest.fixture(scope="module")
def backend(embedded_chat):
    return load(embedded_chat, n_ctx=512)[0]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "temperature"), [*zip(WANTED, cycle([0, 1.0]), strict=False)]
)
def test_the_model_writes_what_satisfies_the_schema(backend, name, temperature):
    structure = Structure(kind="json_schema", source=json.dumps(SCHEMAS[name]))
    sampling = Sampling(temperature=temperature, top_p=0.95, top_k=40, seed=1)
    asked = job("Make up data.", max_tokens=250, structure=structure, sampling=sampling)
    written = answer(backend, asked)
    assert written.end.stop_reason == "end", written.text
    assert faults(SCHEMAS[name], written.text) == [], written.text
