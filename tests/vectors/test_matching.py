import pytest
from hypothesis import given, settings, strategies as st

from protocol.matching import KINDS, Matcher, PatternError, check_pattern, kinds_of
from tests.cases import each_case

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
)
NAMES = st.text(max_size=3).filter(lambda name: not name.startswith("$"))
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
    ),
    max_leaves=5,
)


def difference(expected, actual):
    return Matcher().difference(expected, actual)


@settings(max_examples=50)
@given(value=VALUES)
def test_a_value_matches_itself(value):
    check_pattern(value)
    assert difference(value, value) is None


@settings(max_examples=50)
@given(expected=st.dictionaries(NAMES, VALUES, max_size=3), more=VALUES)
def test_further_members_do_not_matter_at_any_depth(expected, more):
    assert (
        difference({"a": expected}, {"a": {**expected, "$": more}, "b": more}) is None
    )


@settings(max_examples=50)
@given(value=VALUES, other=VALUES)
def test_scalars_match_when_they_are_equal_as_json(value, other):
    if not isinstance(value, dict | list):
        same_kind = kinds_of(value)[0] == kinds_of(other)[0]
        assert (difference(value, other) is None) == (same_kind and value == other)


@each_case(
    ("expected", "actual"),
    [
        ({"a": [1, "b", None, True]}, {"a": [1.0, "b", None, True]}),
        ({"$any": "string"}, ""),
        ({"$any": "number"}, 0.5),
        ({"$any": "number"}, 5),
        ({"$any": "integer"}, 2**63),
        ({"$any": "boolean"}, False),
        ({"$any": "array"}, []),
        ({"$any": "object"}, {}),
        ({"$starts": "decode: "}, "decode: no"),
        ({"a": {"$absent": True}}, {"b": 1}),
        ({"$each": {"$any": "number"}}, []),
        ({"$each": {"$any": "number"}, "times": 2}, [1, 2.5]),
        ({"$each": {}, "descending": "score"}, [{"score": 2}, {"score": 1.5}]),
        ({"$each": {}, "descending": "score"}, [{"score": 2}, {"score": 2}]),
        ([{"$same": "x"}, {"$same": "x"}, {"$same": "y"}], [[1], [1], [2]]),
    ],
)
def test_values_that_match(expected, actual):
    check_pattern(expected)
    assert difference(expected, actual) is None


@each_case(
    ("expected", "actual", "told"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, "$.b is missing"),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "$.a.b is 2, not 1"),
        ({"a": 1}, [], "$ is [], not an object"),
        ([1, 2], [1], "$ has 1 elements, not 2"),
        ([1], [1, 2], "$ has 2 elements, not 1"),
        ([1, 2], [1, 3], "$[1] is 3, not 2"),
        ([], None, "$ is null, not an array"),
        (1, True, "$ is true, not 1"),
        (False, 0, "$ is 0, not false"),
        (None, 0, "$ is 0, not null"),
        ("1", 1, '$ is 1, not "1"'),
        ({"$any": "string"}, 1, "$ is 1, not any string"),
        ({"$any": "number"}, True, "$ is true, not any number"),
        ({"$any": "integer"}, 1.5, "$ is 1.5, not any integer"),
        ({"$any": "integer"}, 1.0, "$ is 1.0, not any integer"),
        ({"$any": "object"}, [], "$ is [], not any object"),
        ({"$starts": "a"}, "ba", "$ is \"ba\", does not begin with 'a'"),
        ({"$starts": ""}, None, "$ is null, does not begin with ''"),
        ({"a": {"$absent": True}}, {"a": None}, "$.a should be absent"),
        ({"$each": 1}, [1, 2], "$[1] is 2, not 1"),
        ({"$each": 1, "times": 2}, [1], "$ has 1 elements, not 2"),
        ({"$each": 1}, {}, "$ is {}, not an array"),
        (
            {"$each": {}, "descending": "s"},
            [{"s": 1}, {"s": 2}],
            "$ is not sorted by s, the largest first",
        ),
        ([{"$same": "x"}] * 2, [1, 2], "$[1] is 2, and was 1 as 'x'"),
    ],
)
def test_values_that_do_not_match(expected, actual, told):
    check_pattern(expected)
    assert difference(expected, actual) == told


def test_what_was_the_same_is_remembered_over_frames():
    matcher = Matcher()
    assert matcher.difference({"a": {"$same": "x"}}, {"a": 1}) is None
    assert matcher.difference({"b": {"$same": "x"}}, {"b": 2}) is not None


def test_a_long_value_is_cut_off():
    told = difference("y", "x" * 10_000)
    assert told is not None
    assert len(told) < 400


@each_case(
    "pattern",
    [
        {"$any": "thing"},
        {"$any": "string", "a": 1},
        {"$starts": 1},
        {"$absent": False},
        {"$each": {"$any": 1}},
        {"$each": 1, "time": 2},
        {"a": [{"$unknown": 1}]},
    ],
)
def test_an_expectation_that_says_nothing_is_refused(pattern):
    with pytest.raises(PatternError):
        check_pattern(pattern)


@settings(max_examples=50)
@given(value=VALUES)
def test_every_value_is_of_a_kind(value):
    assert value is None or set(kinds_of(value)) <= set(KINDS)
