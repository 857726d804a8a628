import operator

import pytest
from hypothesis import given, settings, strategies as st
from jinja2.exceptions import SecurityError

from inferd.dialects.prompt.jinja_sandbox import TemplateSandbox, refuse_expensive
from inferd.limits.prompts import TEMPLATE_NUMBER_BITS, TEMPLATE_OUTPUT_CHARS
from tests.cases import each_case

SMALL = st.integers(-1000, 1000)
COMPUTED = {
    "*": operator.mul,
    "**": operator.pow,
    "//": operator.floordiv,
    "%": operator.mod,
}
LARGEST = 2**TEMPLATE_NUMBER_BITS - 1


def written(source: str, **given: object) -> str:
    return TemplateSandbox().from_string(source).render(**given)


@settings(max_examples=30, deadline=None)
@given(SMALL | st.floats(-9, 9), st.integers(1, 300), st.sampled_from([*COMPUTED]))
def test_small_numbers_are_computed_as_ever(left, right, sign):
    expected = COMPUTED[sign](left, right)
    assert (
        written("{{ (a " + sign + " b) == c }}", a=left, b=right, c=expected) == "True"
    )


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=9) | st.lists(SMALL, max_size=9), st.integers(-2, 9))
def test_what_is_repeated_a_few_times_is(items, times):
    expected = items * times
    assert written(
        "{{ a * b == c }}{{ b * a == c }}", a=items, b=times, c=expected
    ) == ("TrueTrue")


@settings(max_examples=50)
@given(SMALL.map(lambda n_bits: 2 ** abs(n_bits)), st.integers(0, 9999))
def test_no_product_and_no_power_has_more_bits_than_allowed(left, exponent):
    for sign, right in (("*", 2**exponent), ("**", exponent)):
        try:
            refuse_expensive(sign, left, right)
        except SecurityError:
            continue
        assert COMPUTED[sign](left, right).bit_length() <= TEMPLATE_NUMBER_BITS


@each_case("sign", ["//", "%"])
@each_case("numbers", [(LARGEST, 3), (3, LARGEST), (-LARGEST, LARGEST)])
def test_numbers_up_to_the_largest_are_divided(sign, numbers):
    refuse_expensive(sign, *numbers)
    larger = [each * 2 for each in numbers]
    with pytest.raises(SecurityError):
        refuse_expensive(sign, *larger)


@each_case("base", [0, 1, -1, 2, 10])
def test_no_power_has_a_large_exponent(base):
    refuse_expensive("**", base, 1000)
    refuse_expensive("**", base, -(10**9))
    with pytest.raises(SecurityError):
        refuse_expensive("**", base, 10**9)


@each_case("items", ["a", b"a", ["a"], ("a",)], ids=repr)
def test_what_is_repeated_is_no_longer_than_a_prompt(items):
    refuse_expensive("*", items, TEMPLATE_OUTPUT_CHARS)
    for pair in (
        (items, TEMPLATE_OUTPUT_CHARS + 1),
        (TEMPLATE_OUTPUT_CHARS + 1, items),
    ):
        with pytest.raises(SecurityError):
            refuse_expensive("*", *pair)
    refuse_expensive("*", items, -(10**99))


@each_case(
    ("source", "text"),
    [
        ("{{ 42.55 | round }}", "43.0"),
        ("{{ 42.55 | round(1, 'floor') }}", "42.5"),
        ("{{ 1234 | round(-2) }}", "1200"),
        ("{{ 9 is divisibleby 3 }}{{ 9 is divisibleby 2 }}", "TrueFalse"),
        ("{{ '%05d|%s' % (7, 'a') }}", "00007|a"),
    ],
)
def test_the_rest_is_jinjas_own(source, text):
    assert written(source) == text


@each_case(
    "source",
    [
        "{{ 1 | round(309) }}",
        "{{ 1 | round(-309) }}",
        "{{ 1.5 | round(9999999999, 'ceil') }}",
        "{{ huge | round }}",
        "{{ huge is divisibleby 3 }}",
        "{{ 3 is divisibleby huge }}",
        "{{ huge * 1 }}",
        "{{ 3 ** 9999 }}",
    ],
)
def test_a_template_that_computes_with_huge_numbers_is_refused(source):
    with pytest.raises(SecurityError):
        written(source, huge=LARGEST * 2)
