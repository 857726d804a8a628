from inferd.backend.job import Turn
from inferd.dialects.families.gemma3 import GEMMA3
from tests.cases import each_case

TEMPLATE = "{{ '<start_of_turn>' + role }}"


def test_its_turns_have_markers_of_their_own():
    assert GEMMA3.recognises("gemma3", TEMPLATE)
    assert GEMMA3.recognises("llama", TEMPLATE)
    assert not GEMMA3.recognises("gemma3", "<|turn>")
    assert not GEMMA3.recognises("gemma3", TEMPLATE + "<start_function_declaration>")


def test_without_a_template_the_architecture_tells():
    assert GEMMA3.recognises("gemma2", "")
    assert not GEMMA3.recognises("gemma4", "")
    assert not GEMMA3.recognises("gemma-embedding", "")


@each_case(
    ("turns", "said"),
    [
        ([Turn("system", " a "), Turn("user", " b ")], " a \n\nb"),
        ([Turn("user", "a"), Turn("user", "b")], "a\n\nb"),
        ([Turn("user", "a"), Turn("system", "b")], "a\n\nb"),
        ([Turn("system", "a")], "a"),
        ([Turn("user", "")], ""),
    ],
)
def test_the_user_says_what_the_system_says_and_all_of_it_in_one_turn(turns, said):
    user = f"<start_of_turn>user\n{said}<end_of_turn>\n"
    assert GEMMA3.render(turns, [], True) == user + "<start_of_turn>model\n"
