import pytest

from inferd.dialects.named import NAMED, is_name
from inferd.dialects.registry import DIALECTS


@pytest.mark.parametrize(
    ("name", "family"),
    [
        *(("chatml", "chatml"), ("llama3", "llama3"), ("gemma", "gemma3")),
        *(("mistral-v3", "mistral"), ("mistral-v7-tekken", "mistral")),
        *(("granite-4.0", "granite"), ("deepseek3", "deepseek")),
        ("gpt-oss", "harmony"),
    ],
)
def test_a_name_stands_for_a_family(name, family):
    assert NAMED[name] is DIALECTS[family]


@pytest.mark.parametrize("name", ["llama2", "vicuna", "phi4", "deepseek", ""])
def test_other_names_stand_for_none(name):
    assert name not in NAMED


@pytest.mark.parametrize(
    ("template", "is_one"),
    [
        *(("mistral-v7", True), ("", True), ("{{ messages }}", False)),
        ("{% for m in messages %}{% endfor %}", False),
    ],
)
def test_a_name_has_nothing_to_fill_in(template, is_one):
    assert is_name(template) is is_one
