import pytest
from hypothesis import given, strategies as st

from inferd.models.store.names import InvalidNameError, check_name, file_of, name_of
from tests.cases import each_case

PART = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_-]|\.(?!\.)){0,9}", fullmatch=True)
NAMES = st.builds(
    lambda parts, variant: "/".join(parts) + (f":{variant}" if variant else ""),
    st.lists(PART, min_size=1, max_size=4),
    PART | st.none(),
)


@given(NAMES)
def test_a_name_has_a_file_of_its_own(name):
    assert check_name(name) == name
    file = file_of(name)
    assert "/" not in file
    assert not file.startswith(".")
    assert name_of(file) == name


@given(st.text(alphabet="ab./:@+- ", max_size=8))
def test_a_file_has_a_name_only_if_that_has_the_file(text):
    name = name_of(f"{text}.json")
    assert name is None or file_of(check_name(name)) == f"{text}.json"


@each_case(
    "name",
    [
        *("", "..", "../x", "a/../b", "a..b", "/a", "a/", "a//b", "a:b:c", ":b", "a:"),
        *(
            "a b",
            "a\nb",
            "a\x1b[m",
            "a@b",
            "a+b",
            ".a",
            "-a",
            "é",
            "\u017f",  # in lower case "s", as far as Unicode goes
            "\u212a",  # "k"
            "a/b/c/d/e",
            "x" * 129,
        ),
    ],
)
def test_a_name_that_could_mean_something_else_is_refused(name):
    with pytest.raises(InvalidNameError):
        check_name(name)


@each_case("file", ["x", "a..b.json", ".json", "a@b@c.json", "+.json"])
def test_a_file_that_is_no_manifest_has_no_name(file):
    assert name_of(file) is None
