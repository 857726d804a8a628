import tomllib

import pytest
from hypothesis import given, strategies as st

from inferd.config.settings import AccessRule
from inferd.config.toml_text import toml_value

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.one_of(
        TEXTS,
        st.integers(-(2**63), 2**63 - 1),
        st.booleans(),
        st.floats(allow_nan=False),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(value=VALUES)
def test_what_is_written_is_read_back(value):
    text = toml_value(value)
    assert text.isprintable()
    assert tomllib.loads(f"key = {text}") == {"key": value}


def test_a_table_of_settings_is_written_without_what_is_not_set():
    rule = AccessRule(uids=(5, "anna"))
    assert toml_value(rule) == '{uids = [5, "anna"], gids = []}'
    assert toml_value({"a": None, "b": 1}) == "{b = 1}"


def test_what_toml_has_not_is_refused():
    with pytest.raises(TypeError, match="NoneType has no form in TOML"):
        toml_value(None)
