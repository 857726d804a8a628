import msgspec
import pytest

from tests.vectors.vector import (
    FOLDERS,
    VECTORS,
    Step,
    kind_of,
    matches,
    read_vectors,
    sample,
    to_bytes,
)


def test_there_are_vectors_of_each_kind():
    counts = {folder: len(read_vectors(folder)) for folder in FOLDERS}
    assert counts["accepted"] + counts["rejected"] + counts["hostile"] >= 30
    assert min(counts.values()) >= 4


def test_no_vector_is_left_out():
    files = {path.relative_to(VECTORS) for path in VECTORS.rglob("*.json")}
    assert len(files) == len(read_vectors(*FOLDERS))
    assert {path.parts[0] for path in files} == set(FOLDERS)


def test_each_vector_says_something_of_its_own():
    vectors = read_vectors(*FOLDERS)
    assert len({vector.description for vector in vectors.values()}) == len(vectors)
    for name, vector in vectors.items():
        assert vector.description.endswith("."), name
        assert any(step.expected or step.expect_close for step in vector.exchange), name


def test_bytes_are_built_from_their_parts():
    parts = ["ä", {"hex": "ff 00"}, {"repeat": ["a", {"hex": "0a"}], "times": 2}]
    assert to_bytes(parts) == b"\xc3\xa4\xff\x00a\na\n"


@pytest.mark.parametrize("value", [1, {}, {"hex": "ff", "times": 2}, {"repeat": "x"}])
def test_what_is_no_bytes_is_refused(value):
    with pytest.raises(ValueError, match="not bytes"):
        to_bytes(value)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": [1, "b", None, True]}, {"a": [1.0, "b", None, True]}),
        ({"$any": "string"}, ""),
        ({"$any": "number"}, 0.5),
        ({"$starts": "decode: "}, "decode: no"),
        ({"a": {"$any": "string"}}, {"a": "b"}),
    ],
)
def test_values_that_match(expected, actual):
    assert matches(expected, actual)
    assert matches(expected, sample(expected))


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": 1}, {"a": 2}),
        ([1, 2], [1]),
        ([1], [1, 2]),
        (1, True),
        (0, False),
        (None, 0),
        ("1", 1),
        ({"$any": "string"}, 1),
        ({"$any": "number"}, True),
        ({"$starts": "decode: "}, "invalid"),
        ({"$starts": ""}, None),
    ],
)
def test_values_that_do_not_match(expected, actual):
    assert not matches(expected, actual)


@pytest.mark.parametrize(
    "step",
    [b"{}", b'{"on":"v1"}', b'{"send":"x","expect":{}}', b'{"sned":"x"}'],
)
def test_a_step_that_is_none_is_refused(step):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(step, type=Step)


def test_a_kind_is_told_by_json_and_not_by_python():
    values: list[object] = [1, 1.5, True, False, None, "", [], {}]
    assert [kind_of(value) for value in values] == [
        *("number", "number", "True", "False", "None"),
        *("string", "list", "dict"),
    ]
