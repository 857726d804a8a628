from inferd.dialects.registry import DIALECTS, TEMPLATE_ALIASES, is_template_alias
from tests.cases import each_case


@each_case(
    ("name", "family"),
    [
        *(("chatml", "chatml"), ("llama3", "llama3"), ("gemma", "gemma3")),
        *(("mistral-v3", "mistral"), ("mistral-v7-tekken", "mistral")),
        *(("granite-4.0", "granite"), ("deepseek3", "deepseek")),
        ("gpt-oss", "harmony"),
    ],
)
def test_a_name_stands_for_a_family(name, family):
    assert TEMPLATE_ALIASES[name] is DIALECTS[family]


@each_case("name", ["llama2", "vicuna", "phi4", "deepseek", ""])
def test_other_names_stand_for_none(name):
    assert name not in TEMPLATE_ALIASES


@each_case(
    ("template", "is_one"),
    [
        *(("mistral-v7", True), ("", True), ("{{ messages }}", False)),
        ("{% for m in messages %}{% endfor %}", False),
    ],
)
def test_a_name_has_nothing_to_fill_in(template, is_one):
    assert is_template_alias(template) is is_one
