import json

import pytest
from hypothesis import example, given, strategies as st
from llguidance import LLMatcher, LLTokenizer

from inferd.worker.backend import RefusedError
from inferd.worker.llama.grammar.compiler import LIMITS
from inferd.worker.llama.grammar.json_schema import read_schema, refuse_inexact_numbers
from tests.cases import each_case

TOKENIZER = LLTokenizer("byte")


def survives(number):
    try:
        refuse_inexact_numbers("field", {"const": number})
    except RefusedError:
        return False
    return True


def written(schema):
    """Give the text that a grammar has to begin with."""
    source = f"start: %json {json.dumps(schema)}"
    matcher = LLMatcher(TOKENIZER, source, log_level=0, limits=LIMITS)
    assert not matcher.is_error(), matcher.get_error()
    return matcher.compute_ff_bytes()


@given(st.one_of(st.integers(-(2**54), 2**54), st.floats(-1e16, 1e16)))
@example(0.1)
@example(-0.0)
@example(0.30000000000000004)
@example(4245483538437870.0)  # is read as 42454835384378700 / 10
@example(15.558961560240615)
@example(2**53)
@example(-(2**53))
@example(123456789012345e-22)
def test_numbers_that_are_not_refused_are_written_as_they_are(number):
    if survives(number):
        assert json.loads(written({"const": number})) == number


@given(st.integers(0, 10**15 - 1), st.integers(0, 22), st.sampled_from([1, -1]))
def test_up_to_fifteen_digits_every_number_survives(digits, places, sign):
    number = sign * float(f"{digits}e-{places}")
    assert survives(number)
    assert json.loads(written({"enum": [number]})) == number


@given(st.integers(-(2**53), 2**53))
def test_whole_numbers_are_kept_as_bounds(number):
    schema = {"type": "integer", "minimum": number, "maximum": number}
    refuse_inexact_numbers("field", schema)
    assert written(schema) == b"%d" % number


@each_case(
    ("schema", "where"),
    [
        ({"const": 1234567890123456789}, "/const"),
        ({"const": -9223372036854775807}, "/const"),
        ({"enum": [1, 123456789.123456789]}, "/enum/1"),
        ({"const": {"a": [True, {"b": 1e300}]}}, "/const/a/1/b"),
        ({"properties": {"a": {"minimum": -1e30}}}, "/properties/a/minimum"),
        (
            {"properties": {"enum": {"exclusiveMaximum": 2**63}}},
            "/properties/enum/exclusiveMaximum",
        ),
        (
            {"anyOf": [{}, {"items": {"multipleOf": 1e-30}}]},
            "/anyOf/1/items/multipleOf",
        ),
        ({"$defs": {"x": {"maximum": float("nan")}}}, "/$defs/x/maximum"),
    ],
    ids=str,
)
def test_a_number_that_would_be_changed_is_refused_by_its_place(schema, where):
    with pytest.raises(
        RefusedError, match=r"is not supported: numbers are kept"
    ) as refusal:
        refuse_inexact_numbers("field", schema)
    assert str(refusal.value).startswith(f"field{where}: ")


@each_case(
    "schema",
    [
        True,
        [1e300],
        {"default": 1e300, "title": "x", "examples": [1e300]},
        {"properties": {"const": {"type": "number"}, "minimum": {"const": 5}}},
        {"const": [True, None, "1e300", 1.0, 0.5, 10000000000000.5]},
    ],
    ids=str,
)
def test_what_is_compared_with_nothing_or_is_exact_may_stand(schema):
    refuse_inexact_numbers("field", schema)


def test_depth_is_no_matter():
    schema: object = {"const": 2**60}
    for _ in range(5000):
        schema = {"items": schema}
    with pytest.raises(RefusedError, match=f"^field{'/items' * 5000}/const: "):
        refuse_inexact_numbers("field", schema)


@each_case("digits", ["9" * 309, "9" * 310, "9" * 60_000])
@each_case("sign", ["", "-"])
def test_a_number_of_any_length_is_refused_for_its_size(digits, sign):
    schema = read_schema("field", f'{{"const": {sign}{digits}}}')
    with pytest.raises(
        RefusedError, match="^field/const: .* is not supported: numbers"
    ):
        refuse_inexact_numbers("field", schema)


@pytest.mark.parametrize(
    ("source", "said"),
    [("[" * 100_000, "it is nested too deeply"), ("{", "it is no JSON")],
)
def test_messages_of_python_about_a_schema_are_not_repeated(source, said):
    with pytest.raises(RefusedError, match=f"^field: {said}$"):
        read_schema("field", source)
