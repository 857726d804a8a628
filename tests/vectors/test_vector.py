import json
from collections import Counter

import pytest

from inferd.config.parse import parse_config
from protocol.matching import Json
from protocol.vector import (
    LEAVES,
    PROFILES,
    VECTORS,
    VectorError,
    all_vectors,
    name_of,
    profiles,
    read_vector,
    to_bytes,
)
from tests.cases import each_case

ALL = {name_of(path): read_vector(path) for path in all_vectors()}
GOOD = {
    "description": "A thing.",
    "surface": "v1",
    "exchange": [{"send": {"id": "a"}}, {"expect": {"id": "a"}}],
}


def write(tmp_path, document):
    path = tmp_path / "vector.json"
    path.write_text(json.dumps(document))
    return path


# --- the vectors there are --------------------------------------------------------


def test_every_surface_has_vectors_of_each_kind():
    counts = Counter(tuple(name.split("/")[:2]) for name in ALL)
    kinds = [("accepted", 8), ("rejected", 8), ("hostile", 8), ("cancel", 6)]
    for surface in LEAVES.keys() - {"admin"}:
        for kind, least in kinds:
            assert counts[surface, kind] >= least, (surface, kind)
    assert counts["admin", "status"] >= 6
    assert counts["admin", "commands"] >= 10


def test_a_vector_is_in_the_folder_of_its_surface():
    assert {name: vector.surface for name, vector in ALL.items()} == {
        name: name.split("/")[0] for name in ALL
    }


def test_each_vector_says_something_of_its_own():
    said = [(vector.surface, vector.description) for vector in ALL.values()]
    assert [each for each, times in Counter(said).items() if times > 1] == []
    for name, vector in ALL.items():
        assert vector.description.endswith("."), name
        assert vector.exchange[-1].action.startswith("expect"), name


def test_every_profile_is_needed_and_can_be_configured():
    used = {vector.profile for vector in ALL.values()} - {None}
    assert used == set(profiles())
    for name in profiles():
        parse_config((PROFILES / f"{name}.toml").read_text())


def test_few_daemons_are_enough_for_all_vectors():
    assert len(profiles()) <= 10


def test_the_readme_names_every_profile():
    readme = (VECTORS / "README.md").read_text()
    assert [name for name in profiles() if f"`{name}`" not in readme] == []


# --- reading one ------------------------------------------------------------------


def test_a_vector_is_read(tmp_path):
    steps = [{"send": "x"}, {"on": "v2#b", "expect": {}}, {"expect_close": True}]
    vector = read_vector(
        write(tmp_path, GOOD | {"profile": "plain", "exchange": steps})
    )
    assert vector.profile == "plain"
    assert vector.surfaces == {"v1", "v2"}
    assert [(step.on, step.action) for step in vector.exchange] == [
        ("v1", "send"),
        ("v2#b", "expect"),
        ("v1", "expect_close"),
    ]


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        GOOD | {"surface": "v3"},
        GOOD | {"description": None},
        GOOD | {"exchange": {}},
        GOOD | {"profile": "nobody"},
        GOOD | {"profile": 1},
        GOOD | {"needs": {}},
    ],
)
def test_what_is_no_vector_is_refused(tmp_path, document):
    path = write(tmp_path, document)
    with pytest.raises(VectorError, match=f"^{path}: "):
        read_vector(path)


@pytest.mark.parametrize(
    "step",
    [
        {},
        [],
        {"on": "v1"},
        {"on": "v3", "send": "x"},
        {"on": 1, "send": "x"},
        {"send": "x", "expect": {}},
        {"sned": "x"},
        {"send": 1},
        {"send_raw": 1},
        {"send_raw": {"hex": "x"}},
        {"send_raw": {"repeat": "x", "times": "2"}},
        {"end_of_sending": False},
        {"expect_close": 1},
        {"expect": "x"},
        {"expect": {"id": {"$any": "thing"}}},
        {"expect": {"id": [{"$some": 1}]}},
        {"expect_terminal": {"id": {"$any": "string", "x": 1}}},
        {"send": {}, "fds": "x"},
        {"send": {}, "fds": [1]},
        {"send": {}, "on": "admin", "fds": ["x"]},
        {"expect": {}, "fds": ["x"]},
        {"end_of_sending": True, "fds": ["x"]},
    ],
)
def test_what_is_no_step_is_refused(tmp_path, step):
    with pytest.raises(VectorError):
        read_vector(write(tmp_path, GOOD | {"exchange": [step]}))


def test_files_may_go_with_what_is_sent(tmp_path):
    sent: Json = {"fds": ["x", {"hex": "ff"}], "send": "line"}
    step = read_vector(write(tmp_path, GOOD | {"exchange": [sent]})).exchange[0]
    assert (step.data, step.fds) == (b"line\n", ("x", {"hex": "ff"}))


def test_a_vector_that_is_no_json_is_refused(tmp_path):
    path = tmp_path / "vector.json"
    path.write_bytes(b"\xff")
    with pytest.raises(VectorError, match="vector.json"):
        read_vector(path)


def test_a_name_is_a_place_below_the_vectors_or_a_path(tmp_path):
    assert name_of(VECTORS / "v1" / "accepted" / "stream.json") == "v1/accepted/stream"
    assert name_of(tmp_path / "x.json") == str(tmp_path / "x")


# --- bytes ------------------------------------------------------------------------


def test_bytes_are_built_from_their_parts():
    parts: list[Json] = [
        "ä",
        {"hex": "ff 00"},
        {"repeat": ["a", {"hex": "0a"}], "times": 2},
    ]
    assert to_bytes(parts) == b"\xc3\xa4\xff\x00a\na\n"


@each_case("value", [1, {}, {"hex": "ff", "times": 2}, {"repeat": "x"}])
def test_what_is_no_bytes_is_refused(value):
    with pytest.raises(VectorError, match="no bytes"):
        to_bytes(value)


def test_a_line_that_is_sent_ends(tmp_path):
    steps = [{"send": "ä {"}, {"send": {"a": "ä"}}, {"send_raw": "x"}]
    vector = read_vector(write(tmp_path, GOOD | {"exchange": steps}))
    assert [step.data for step in vector.exchange] == [
        "ä {\n".encode(),
        '{"a": "ä"}\n'.encode(),
        b"x",
    ]
